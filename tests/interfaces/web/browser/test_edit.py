"""Writing in a browser: create, edit, rename and delete pages; conflicts, errors, and text that is never lost."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.interfaces.web.browser.conftest import ManagedServer
from tests.support.browser import OpenTab
from tests.support.documents import make_pdf

pytestmark = pytest.mark.model

TEXT = "#app\\.text"
SAVE = "#app\\.save"
CONFLICT = "#app\\.conflict"


def read_page(managed: ManagedServer, path: str) -> str:
    content: str = managed.call("GET", f"pages/{path}").json()["content"]
    return content


def write_page(managed: ManagedServer, path: str, content: str) -> None:
    """Write a page as another client does, over the current version."""
    answer = managed.call("PUT", f"pages/{path}", {"content": content})
    if answer.status_code == 409:
        answer = managed.call("PUT", f"pages/{path}", {"content": content}, **{"If-Match": "*"})
    assert answer.status_code in (200, 201), answer.text


def open_editor(managed: ManagedServer, visit: OpenTab, page: str, *expected: str, key: str = "write") -> Page:
    return managed.open(visit, key, f"edit?page={page}", "form.editor", expected=expected).page


def test_a_new_page_is_created_after_a_look_at_similar_pages(managed: ManagedServer, visit: OpenTab) -> None:
    page = managed.open(visit, "write", "", "nav >> text=New page").page
    page.get_by_role("link", name="New page").click()
    page.get_by_label("Path").fill("Incidents/Disk of the database full")
    page.fill(TEXT, "# Disk of the database full\n\nThe disk of the database is nearly full.\n")
    page.click(SAVE)
    similar = page.locator(".similar-pages")
    expect(similar.get_by_role("link", name="Database disk full")).to_have_attribute("target", "_blank")
    expect(similar).to_be_focused()
    assert managed.call("GET", "pages/Incidents/Disk of the database full").status_code == 404
    page.get_by_role("button", name="Save anyway").click()
    expect(page.locator("article h1")).to_have_text("Disk of the database full")
    expect(page.locator(".note.done")).to_have_text("The page was created.")
    written = managed.call("GET", "pages/Incidents/Disk of the database full").json()
    assert written["last_commit"]["author"] == "Ines Okafor (write)"
    log = managed.call("GET", "report", key="admin").json()
    assert "nearly full" not in str(log), "looking for similar pages is no search"


def test_a_page_is_edited_with_preview_and_changes(managed: ManagedServer, visit: OpenTab) -> None:
    write_page(managed, "Notes/Tea", "# Tea\r\n\r\nTwo minutes.\r\n")
    page = managed.open(visit, "write", "read?page=Notes/Tea", "text=Rename").page
    page.get_by_role("link", name="Edit", exact=True).click()
    expect(page.locator(SAVE)).to_be_disabled()
    page.fill(TEXT, "# Tea\n\nThree minutes. See [[Home]]. <script>alert(1)</script>\n")
    page.get_by_role("radio", name="Preview").check()
    panel = page.locator("#app\\.panel")
    expect(panel.locator("article h1")).to_have_text("Tea")
    expect(panel.get_by_role("link", name="Home")).to_have_attribute("href", "read?page=Home")
    page.get_by_role("radio", name="Changes").check()
    expect(panel.locator("del")).to_have_text("Two minutes.")
    page.get_by_role("radio", name="Write").check()
    page.get_by_label("What did you change?").fill("Longer")
    page.keyboard.press("Control+s")
    expect(page.locator(".note.done")).to_have_text("Saved.")
    written = managed.call("GET", "pages/Notes/Tea").json()
    assert written["content"].startswith("# Tea\r\n\r\nThree minutes."), "line ends are kept"
    assert written["last_commit"]["message"].strip() == "Longer"


def test_the_page_of_an_unknown_address_has_the_links_of_the_wiki(managed: ManagedServer, visit: OpenTab) -> None:
    page = managed.open(visit, "write", "Practices/Tea/Black", "text=New page", expected=("404",)).page
    page.get_by_role("link", name="New page").click()
    expect(page.get_by_label("Path")).to_be_visible()


def test_a_document_has_no_link_to_the_editor(managed: ManagedServer, visit: OpenTab) -> None:
    managed.commit("Notes/manual.pdf", make_pdf(["Grease the bearing every week."]))
    page = managed.open(visit, "write", "read?page=Notes/manual.pdf", "text=Rename").page
    expect(page.get_by_role("link", name="Original")).to_be_visible()
    expect(page.get_by_role("link", name="Edit")).to_have_count(0)


def test_the_message_after_saving_moves_no_search_box(managed: ManagedServer, visit: OpenTab) -> None:
    page = managed.open(visit, "write", "read?page=Practices/Deploying", "text=Rename").page
    page.set_viewport_size({"width": 1200, "height": 800})
    before = page.locator(".read .box").bounding_box()
    page.get_by_role("link", name="Edit", exact=True).click()
    page.fill(TEXT, page.input_value(TEXT) + "\nNever on a Friday.\n")
    page.click(SAVE)
    expect(page.locator(".note.done")).to_have_text("Saved.")
    assert page.locator(".read .box").bounding_box() == before


def test_changes_are_those_of_the_writer_even_if_the_page_was_changed_meanwhile(
    managed: ManagedServer, visit: OpenTab
) -> None:
    write_page(managed, "Notes/Kitchen", "# Kitchen\n\nTwo cups.\n")
    page = open_editor(managed, visit, "Notes/Kitchen", "404")
    page.fill(TEXT, "# Kitchen\n\nThree cups.\n")
    panel, note = page.locator("#app\\.panel"), page.locator("#app\\.panel .note")
    page.get_by_role("radio", name="Changes").check()
    expect(panel.locator("del")).to_have_text("Two cups.")
    expect(note).to_have_count(0)
    write_page(managed, "Notes/Kitchen", "# Kitchen\n\nTwo cups.\n\nThe tin is new.\n")
    page.get_by_role("radio", name="Preview").check()
    page.get_by_role("radio", name="Changes").check()
    expect(note).to_contain_text("This page was changed while you edited it.")
    expect(panel.locator("del")).to_have_text(["Two cups."])
    expect(panel.locator("ins")).to_have_text(["Three cups."])
    assert managed.call("DELETE", "pages/Notes/Kitchen").status_code == 200
    page.get_by_role("radio", name="Preview").check()
    page.get_by_role("radio", name="Changes").check()
    expect(note).to_contain_text("This page was deleted while you edited it.")
    expect(panel.locator("del")).to_have_text(["Two cups."])
    page.get_by_role("radio", name="Write").check()
    page.fill(TEXT, "# Kitchen\n\nTwo cups.\n")  # nothing to lose


def test_the_panel_that_was_chosen_last_is_shown_if_its_answer_comes_first(
    managed: ManagedServer, visit: OpenTab
) -> None:
    write_page(managed, "Notes/Pantry", "# Pantry\n\nTwo jars.\n")
    page = open_editor(managed, visit, "Notes/Pantry", "404")
    page.fill(TEXT, "# Pantry\n\nThree jars.\n")
    waiting: list[Route] = []

    def delay_first(route: Route) -> None:
        waiting.append(route)
        if len(waiting) > 1:
            route.continue_()

    page.route("**/preview/**", delay_first)
    page.get_by_role("radio", name="Preview").check()
    page.get_by_role("radio", name="Changes").check()
    panel = page.locator("#app\\.panel")
    expect(panel.locator("del")).to_have_text("Two jars.")
    with page.expect_response("**/preview/**"):
        waiting[0].continue_()
    page.evaluate("new Promise(requestAnimationFrame)")
    expect(panel.locator("del")).to_have_text("Two jars.")
    page.unroute("**/preview/**")
    page.get_by_role("radio", name="Write").check()
    page.fill(TEXT, "# Pantry\n\nTwo jars.\n")  # nothing to lose


@pytest.mark.parametrize("choice", ["mine", "other"])
def test_a_conflict_shows_both_versions_and_the_reader_chooses(
    managed: ManagedServer, visit: OpenTab, choice: str
) -> None:
    path = f"Notes/Conflict {choice}"
    write_page(managed, path, "# Conflict\n\nOne.\n")
    page = open_editor(managed, visit, path, "409")
    page.fill(TEXT, "# Conflict\n\nMine.\n")
    write_page(managed, path, "# Conflict\n\nTheirs.\n")
    page.click(SAVE)
    conflict = page.locator(CONFLICT)
    expect(conflict).to_contain_text("This page was changed while you edited it")
    expect(conflict.locator("del")).to_have_text("Theirs.")
    expect(conflict.locator("ins")).to_have_text("Mine.")
    expect(page.locator(TEXT)).to_have_value("# Conflict\n\nMine.\n")
    if choice == "mine":
        conflict.get_by_role("button", name="Save my text instead").click()
        expect(page.locator("article")).to_contain_text("Mine.")
    else:
        conflict.get_by_role("button", name="Use the other version").click()
        page.get_by_role("dialog").get_by_role("button", name="Discard my text").click()
        expect(page.locator(TEXT)).to_have_value("# Conflict\n\nTheirs.\n")
    assert ("Mine." in read_page(managed, path)) == (choice == "mine")


def test_a_page_that_was_deleted_meanwhile_can_be_created_again(managed: ManagedServer, visit: OpenTab) -> None:
    write_page(managed, "Notes/Gone", "# Gone\n\nOne.\n")
    page = open_editor(managed, visit, "Notes/Gone", "409", "404")
    page.fill(TEXT, "# Gone\n\nMy text.\n")
    assert managed.call("DELETE", "pages/Notes/Gone").status_code == 200
    page.click(SAVE)
    expect(page.locator(CONFLICT)).to_contain_text("deleted while you edited it")
    page.get_by_role("button", name="Create it again with my text").click()
    expect(page.locator("article")).to_contain_text("My text.")


def test_a_failed_save_keeps_the_text_and_leaving_asks(managed: ManagedServer, visit: OpenTab) -> None:
    write_page(managed, "Notes/Kept", "# Kept\n\nOne.\n")
    page = open_editor(managed, visit, "Notes/Kept", "503", "a dialog", "ERR_")
    problem = {"detail": "the disk is full", "hint": "ask the operator", "code": "storage-error"}
    page.route("**/api/v1/pages/**", lambda route: route.fulfill(status=503, json=problem))
    page.locator(TEXT).press_sequentially("Precious. ")
    page.click(SAVE)
    state = page.locator("#app\\.save-state")
    expect(state.get_by_role("alert")).to_contain_text("The disk is full.")
    expect(state).to_contain_text("Ask the operator.")
    page.unroute("**/api/v1/pages/**")
    with page.expect_event("dialog") as asked:
        page.locator("#app\\.cancel").click()
    assert asked.value.type == "beforeunload"
    expect(page.locator(TEXT)).to_have_value(re.compile(r"^Precious\. # Kept"))
    # A tab that crashes does not ask: the text is there again afterwards.
    other = page.context.new_page()
    drafts = page.evaluate("Object.entries(sessionStorage)")
    other.goto(f"{managed.server.url}healthz")
    other.evaluate("(entries) => { for (const [name, value] of entries) sessionStorage.setItem(name, value); }", drafts)
    other.goto(f"{managed.server.url}w/runbook/edit?page=Notes/Kept")
    expect(other.locator(TEXT)).to_have_value(re.compile(r"^Precious\. # Kept"))
    expect(other.locator("#app\\.state")).to_contain_text("not saved")
    other.get_by_role("button", name="Discard it").click()
    expect(other.locator(TEXT)).to_have_value("# Kept\n\nOne.\n")
    other.close()
    page.click(SAVE)
    expect(page.locator("article")).to_contain_text("Precious.")


def test_a_key_that_is_revoked_while_writing_is_replaced_and_the_text_saved(
    managed: ManagedServer, visit: OpenTab
) -> None:
    made = managed.call("POST", "keys", {"scope": "write", "label": "short"}).json()
    managed.tokens["short"] = made["token"]
    write_page(managed, "Notes/Revoked", "# Revoked\n\nOne.\n")
    page = open_editor(managed, visit, "Notes/Revoked", "401", "403", key="short")
    page.fill(TEXT, "# Revoked\n\nStill here.\n")
    assert managed.call("DELETE", f"keys/{made['id']}").status_code == 200
    page.click(SAVE)
    page.get_by_role("button", name="Enter a key").click()
    page.get_by_label("Your key").fill(managed.tokens["read"])
    page.get_by_role("button", name="Use this key").click()
    expect(page.locator("#app\\.save-state").get_by_role("alert")).to_contain_text("scope write")
    page.get_by_role("button", name="Enter a key").click()
    page.get_by_label("Your key").fill(managed.tokens["write"])
    page.get_by_role("button", name="Use this key").click()
    expect(page.locator("article")).to_contain_text("Still here.")


def test_a_page_is_renamed_with_its_sub_pages_and_links_and_deleted(managed: ManagedServer, visit: OpenTab) -> None:
    write_page(managed, "Tools/Drill", "# Drill\n\nIn the shed.\n")
    write_page(managed, "Tools/Drill/Bits", "# Bits\n\nSharp.\n")
    write_page(managed, "Tools/List", "# List\n\nThe [[Tools/Drill]].\n")
    page = managed.open(visit, "write", "read?page=Tools/Drill", "text=Rename", expected=("409", "404")).page
    page.get_by_role("button", name="Rename").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Rename")).to_be_disabled()
    dialog.get_by_label("New path").fill("Tools/List")
    dialog.get_by_role("button", name="Rename").click()
    expect(dialog.get_by_role("alert")).to_be_visible()
    dialog.get_by_label("New path").fill("Machines/Drill")
    page.keyboard.press("Enter")
    expect(page.locator(".note.done")).to_contain_text("Renamed from Tools/Drill; 1 file moved with it")
    assert "Machines/Drill" in read_page(managed, "Tools/List")
    assert managed.call("GET", "pages/Machines/Drill/Bits").status_code == 200
    page.get_by_role("button", name="Delete").click()
    expect(page.get_by_role("dialog").get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Delete")).to_be_focused()
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("button", name="Delete the page").click()
    expect(page.locator(".note.done")).to_contain_text("Machines/Drill was deleted.")
    assert managed.call("GET", "pages/Machines/Drill").status_code == 404


def test_a_read_key_sees_no_button_that_writes(managed: ManagedServer, visit: OpenTab) -> None:
    page = managed.open(visit, "read", "read?page=Home", "article").page
    page.wait_for_load_state("networkidle")
    for name in ("Edit", "New page", "Manage"):
        assert page.get_by_role("link", name=name, exact=True).count() == 0
    assert page.get_by_role("button", name="Delete").count() == 0
    page.goto(f"{managed.server.url}w/runbook/edit?page=Home")
    expect(page.locator("#app\\.state")).to_contain_text("You cannot write in this wiki.")
    expect(page.locator("form.editor")).to_be_hidden()
