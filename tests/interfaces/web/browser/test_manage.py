"""Administration in a browser: index, keys, backups, searches, settings, wikis; and who sees what."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.interfaces.web.browser.conftest import ManagedServer
from tests.interfaces.web.browser.test_appearance import check_accessibility, check_layouts
from tests.support.browser import OpenTab, measure_page
from tests.support.tiers import IS_FULL
from tests.support.wait import wait_until

pytestmark = pytest.mark.model

SECTION = "#app\\.section"
STATE = "#app\\.state"


def open_section(managed: ManagedServer, visit: OpenTab, name: str, *expected: str, key: str = "admin") -> Page:
    page = managed.sign_in(visit, key, expected=expected).page
    page.get_by_role("navigation", name="Sections").get_by_role("link", name=name).click()
    expect(page.get_by_role("heading", name=name, level=2, exact=True)).to_be_visible()
    return page


def test_sync_now_indexes_a_commit_and_names_a_page_with_a_problem(managed: ManagedServer, visit: OpenTab) -> None:
    page = open_section(managed, visit, "Index", "422", key="admin")
    managed.commit("Scans/Old letter.md", b"\x89PNG\0\0\0")
    page.get_by_role("button", name="Sync now").click()
    expect(page.locator(".note.done")).to_have_text("The index is up to date.")
    row = page.get_by_role("row", name="Old letter")
    expect(row).to_contain_text("binary")
    row.get_by_role("link", name="Scans/Old letter.md").click()
    expect(page.locator("main")).to_contain_text("binary data")


def test_a_failing_sync_shows_the_reason(managed: ManagedServer, visit: OpenTab) -> None:
    page = open_section(managed, visit, "Index")
    # Outside of the served directory, where it would be found as another wiki.
    hidden = managed.runbook.parent.with_name("runbook-away")
    managed.runbook.rename(hidden)
    try:
        page.get_by_role("button", name="Sync now").click()
        expect(page.locator(f"{SECTION} .note")).to_contain_text("The sync failed.")
        expect(page.locator(f"{SECTION} .problem .hint").first).to_be_visible()
        expect(page.locator(".pill")).to_have_text("Needs attention")
    finally:
        hidden.rename(managed.runbook)
    page.get_by_role("button", name="Sync now").click()
    expect(page.locator(".pill")).to_have_text("Up to date")


def test_the_index_is_rebuilt_after_an_estimate(managed: ManagedServer, visit: OpenTab) -> None:
    page = open_section(managed, visit, "Index")
    page.get_by_role("button", name="Rebuild").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("status")).to_contain_text(re.compile(r"\d+ passages: about \d+ (second|minute)"))
    dialog.get_by_role("button", name="Rebuild").click()
    expect(page.locator(".note.done")).to_contain_text("The index was rebuilt")
    expect(page.get_by_role("button", name="Rebuild")).to_be_enabled()


def test_a_key_is_shown_once_works_and_is_revoked(managed: ManagedServer, visit: OpenTab) -> None:
    page = open_section(managed, visit, "Keys")
    page.get_by_role("button", name="Create a key").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Label").fill("Nightly job")
    dialog.get_by_label("Scope").select_option("write")
    dialog.get_by_label("Last day").fill("2020-01-01")
    dialog.get_by_role("button", name="Create").click()
    assert dialog.is_visible(), "the browser refuses a day in the past"
    dialog.get_by_label("Last day").fill("2999-12-31")
    dialog.get_by_role("button", name="Create").click()
    token = page.get_by_label("Key", exact=True).input_value()
    managed.tokens["nightly"] = token
    assert managed.call("GET", "me", key="nightly").json()["scope"] == "write"
    record = page.locator(".records li", has_text="Nightly job")
    expect(record).to_contain_text("scope write")
    expect(record).to_contain_text("expires in 97")
    page.reload()
    expect(record).to_be_visible()
    assert token not in page.content()
    record.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(record).to_have_count(0)
    assert managed.call("GET", "me", key="nightly").status_code == 401
    expect(page.locator(".records li", has_text="in use here")).to_contain_text("Ines Okafor (admin)")


def test_a_backup_is_taken_and_restored(managed: ManagedServer, visit: OpenTab) -> None:
    page = open_section(managed, visit, "Backups")
    page.get_by_role("button", name="Back up now").click()
    expect(page.locator(".note.done")).to_contain_text("The backup was taken")
    page.locator(".records li").first.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("dialog")).to_contain_text("The index is replaced")
    page.get_by_role("dialog").get_by_role("button", name="Restore").click()
    expect(page.locator(".note.done")).to_have_text("The backup was restored. A sync brings the index up to date.")


def test_the_report_lists_queries_without_a_result(managed: ManagedServer, visit: OpenTab) -> None:
    query = "quantum chromodynamics lattice"
    managed.call("GET", f"search?q={query}")
    wait_until(lambda: query in managed.call("GET", "report").text)
    page = open_section(managed, visit, "Searches", "404")
    page.get_by_label("Period").select_option("7 days")
    expect(page.get_by_role("region", name="Queries without a result")).to_contain_text(query)
    page.route("**/api/v1/report*", lambda route: route.fulfill(status=404, json={"code": "no-query-log"}))
    page.get_by_label("Period").select_option("90 days")
    expect(page.get_by_role("region", name="Searches")).to_contain_text("not logged")


def test_an_operator_changes_settings_and_sees_why_one_is_refused(managed: ManagedServer, visit: OpenTab) -> None:
    page = open_section(managed, visit, "Settings", "422", key="operator")
    page.get_by_label("edit_url").fill("nonsense")
    page.get_by_role("button", name="Save the settings").click()
    expect(page.locator(f"{SECTION} [role=alert]")).to_contain_text("edit_url")
    page.get_by_label("edit_url").fill("")
    page.get_by_label("hide").fill("/Archive")
    page.get_by_label("webhook_secret").fill("s3cret")
    page.get_by_role("button", name="Save the settings").click()
    expect(page.locator(".note.done")).to_contain_text("The settings were saved.")
    settings = managed.call("GET", "wikis/runbook").json()["settings"]
    assert settings["hide"] == "/Archive"
    page.reload()
    expect(page.get_by_label("hide")).to_have_value("/Archive")
    assert "s3cret" not in page.content()
    page.get_by_label("hide").fill("")
    page.get_by_label("Remove webhook_secret").check()
    page.get_by_role("button", name="Save the settings").click()
    expect(page.locator(".note.done")).to_be_visible()
    assert {"hide", "webhook_secret"}.isdisjoint(managed.call("GET", "wikis/runbook").json()["settings"])


def test_an_operator_key_of_a_wikis_page_is_used_everywhere_and_another_key_only_there(
    managed: ManagedServer, visit: OpenTab
) -> None:
    tab = managed.sign_in(visit, "operator")
    page = tab.page
    expect(page.get_by_role("link", name="Settings")).to_be_visible()
    page.goto(f"{managed.server.url}manage")
    expect(page.get_by_role("button", name="Add a wiki")).to_be_visible()
    page.goto(managed.server.url)
    expect(page.locator(".tiles .name")).to_have_count(2)
    page.locator("#app\\.key").click()
    expect(page.locator(".message")).to_contain_text("without a key")
    assert page.evaluate("sessionStorage.length") == 0
    for kind in ("read", "write", "admin"):
        tab = managed.open(visit, kind, "", "#app\\.results .card")
        sent: list[str | None] = []
        tab.page.wait_for_load_state("networkidle")
        tab.page.on("request", lambda request, sent=sent: sent.append(request.headers.get("authorization")))
        for path in ("w/allotment/", "manage", ""):
            tab.page.goto(managed.server.url + path)
            tab.page.wait_for_load_state("networkidle")
        assert sent
        assert set(sent) == {None}


def test_on_a_phone_a_key_leaves_room_for_the_name_of_the_wiki(managed: ManagedServer, visit: OpenTab) -> None:
    options = {"viewport": {"width": 375, "height": 720}, "has_touch": True, "is_mobile": True}
    page = managed.open(visit, "operator", "", "#app\\.results .card", **options).page
    expect(page.get_by_role("link", name="Manage")).to_be_visible()
    expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    expect(page.get_by_role("link", name="Pages", exact=True)).to_be_visible()
    name = page.locator("a.wiki-name")
    name.evaluate("name => name.textContent = 'vet-handbook'")
    assert name.evaluate("name => name.scrollWidth <= name.clientWidth")


def test_an_operator_adds_a_directory_writes_in_it_and_removes_it(
    managed: ManagedServer, visit: OpenTab, tmp_path: Path
) -> None:
    (tmp_path / "Home.md").write_text("# Home\n\nA plain directory.\n")
    page = managed.sign_in(visit, "operator", "manage", expected=("422", "409", "404")).page
    expect(page.locator(".rows .pill").first).to_be_visible()
    page.get_by_role("button", name="Add a wiki").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("plain")
    dialog.get_by_label("Source").fill("relative/path")
    dialog.get_by_role("button", name="Add").click()
    expect(dialog.get_by_role("alert")).to_contain_text("neither an absolute path nor a URL")
    dialog.get_by_label("Source").fill(str(tmp_path))
    dialog.get_by_label("Kind").select_option("directory")
    dialog.get_by_role("button", name="Add").click()
    row = page.locator("[data-slug=plain]")
    expect(row.locator(".pill")).to_have_text("Up to date")
    row.get_by_role("link", name="plain").click()
    page.get_by_role("link", name="New page").click()
    page.get_by_label("Path").fill("Notes/First")
    page.fill("#app\\.text", "# First\n\nWritten in the browser.\n")
    page.click("#app\\.save")
    page.wait_for_url(re.compile("/read"))
    assert (tmp_path / "Notes" / "First.md").read_text() == "# First\n\nWritten in the browser.\n"
    page.goto(f"{managed.server.url}w/plain/manage#settings")
    page.get_by_role("button", name="Remove the wiki").click()
    confirm = page.get_by_role("dialog").get_by_role("button", name="Remove the wiki")
    page.get_by_role("dialog").get_by_role("textbox").fill("plai")
    expect(confirm).to_be_disabled()
    page.get_by_role("dialog").get_by_role("textbox").fill("plain")
    confirm.click()
    expect(page.locator(".note.done")).to_have_text("plain was removed.")
    expect(row).to_have_count(0)
    assert (tmp_path / "Home.md").exists()


def test_an_admin_sees_nothing_of_other_wikis_and_no_settings(managed: ManagedServer, visit: OpenTab) -> None:
    tab = managed.sign_in(visit, "admin", expected=("403",))
    page = tab.page
    expect(page.locator(".pill")).to_be_visible()
    assert page.get_by_role("link", name="Settings").count() == page.get_by_role("link", name="All wikis").count() == 0
    page.goto(f"{managed.server.url}manage")
    page.get_by_role("button", name="Enter a key").click()
    page.get_by_label("Your key").fill(managed.tokens["admin"])
    page.get_by_role("button", name="Use this key").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Manage runbook")
    assert "allotment" not in page.content()
    page.goto(f"{managed.server.url}w/allotment/manage")
    expect(page.locator(STATE)).to_contain_text("You cannot manage this wiki.")
    assert page.locator(f"{SECTION} *").count() == 0


def list_views(page: Page, url: str) -> list[tuple[str, str, str]]:
    """Address, selector to wait for, and the button that opens a dialog there."""
    wiki = f"{url}w/runbook/"
    return [
        (f"{wiki}edit?page=Services/Ledger", "form.editor", ""),
        (f"{wiki}read?page=Home", "text=Rename", "Rename"),
        (f"{wiki}manage", ".figures", "Rebuild…"),
        (f"{wiki}manage?1#keys", ".records li", "Create a key"),
        (f"{wiki}manage?2#backups", ".section-head", ""),
        (f"{wiki}manage?3#searches", ".figures", ""),
        (f"{wiki}manage?4#settings", ".danger-zone", "Remove the wiki…"),
        (f"{url}manage", ".rows .pill", "Add a wiki"),
    ]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_views_are_accessible_at_three_widths(managed: ManagedServer, visit: OpenTab, scheme: str) -> None:
    page = managed.sign_in(visit, "operator", "manage", color_scheme=scheme).page
    for address, wait, button in list_views(page, managed.server.url):
        page.goto(address)
        page.wait_for_selector(wait)
        if "edit?" in address:
            page.get_by_role("radio", name="Preview").check()
            page.wait_for_selector("#app\\.panel table")
        check_layouts(page, scheme)
        if button:
            page.get_by_role("button", name=button).click()
            expect(page.get_by_role("dialog")).to_be_visible()
            check_accessibility(page, with_axe=IS_FULL or scheme == "light")


def test_administration_and_writing_weigh_less_than_45_kb(managed: ManagedServer, visit: OpenTab) -> None:
    page = managed.sign_in(visit, "operator", "manage").page
    for view in ("manage", "edit?page=Home", "read?page=Home"):
        sizes = measure_page(page, f"{managed.server.url}w/runbook/{view}")
        assert sum(sizes.values()) < 45_000, sizes


def test_the_start_page_says_what_a_wiki_is_about(managed: ManagedServer, visit: OpenTab) -> None:
    managed.call("PATCH", "wikis/runbook", {"settings": {"description": "What to do <at night>."}})
    tab = managed.sign_in(visit, "operator")
    tab.page.goto(managed.server.url)
    expect(tab.page.locator(".tiles .about")).to_have_text("What to do <at night>.")
    managed.call("PATCH", "wikis/runbook", {"settings": {"description": ""}})
