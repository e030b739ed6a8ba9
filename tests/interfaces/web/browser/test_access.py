"""Keys, the start page and the status page in a browser."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import OpenTab
from tests.support.web_server import WebServer

pytestmark = pytest.mark.model

CARDS = "#app\\.results .card"


def enter_key(page: Page, token: str) -> None:
    """Enter a key in the dialog that the message of a locked page opens."""
    page.get_by_role("button", name="Enter a key").click()
    page.get_by_label("Your key").fill(token)
    page.get_by_role("button", name="Use this key").click()


def test_a_private_wiki_asks_for_a_key_stores_it_in_the_tab_and_forgets_it(
    locked: tuple[WebServer, str], visit: OpenTab
) -> None:
    server, token = locked
    address = f"{server.url}w/allotment/?q=compost&page=Growing/Composting"
    tab = visit(address, wait="text=Enter a key", expected=("401",))
    page = tab.page
    expect(page.get_by_role("alert").first).to_contain_text("A key is required.")
    assert page.locator(CARDS).count() == 0
    enter_key(page, "wh_nonsense")
    expect(page.get_by_role("alert").first).to_contain_text("unknown")
    enter_key(page, token)
    expect(page.locator(CARDS).first).to_contain_text("Compost")
    expect(page.locator("#app\\.preview-name")).to_have_text("Composting")
    page.reload()
    expect(page.locator(CARDS).first).to_contain_text("Compost")
    assert page.evaluate("document.cookie + Object.keys(localStorage).join()") == ""
    assert token not in page.content()
    page.locator("#app\\.key").click()
    expect(page.get_by_role("alert").first).to_contain_text("A key is required.")
    assert page.evaluate("sessionStorage.length") == 0
    assert all(token not in url for url in tab.requests)


def test_a_key_of_another_wiki_is_rejected_and_can_be_replaced(locked: tuple[WebServer, str], visit: OpenTab) -> None:
    server, token = locked
    page = visit(f"{server.url}w/runbook/", wait="text=Enter a key", expected=("401", "403")).page
    enter_key(page, token)
    expect(page.get_by_role("alert").first).to_contain_text("another wiki")
    expect(page.get_by_role("button", name="Enter a key")).to_be_visible()
    assert page.locator(CARDS).count() == 0


def test_the_start_page_lists_only_what_the_visitor_may_see(
    locked: tuple[WebServer, str], server: WebServer, visit: OpenTab
) -> None:
    page = visit(server.url, wait=".tiles a").page
    assert page.locator(".tiles .name").all_inner_texts()[0].startswith("allotment")
    expect(page.locator(".tiles small").first).to_have_text("14 pages · up to date")
    page.get_by_role("link", name="runbook").click()
    expect(page.locator(CARDS).first).to_be_visible()
    closed, token = locked
    page = visit(closed.url, wait=".message").page
    assert "allotment" not in page.content()
    expect(page.locator(".message")).to_contain_text("without a key")
    enter_key(page, token)
    # With one visible wiki there is nothing to choose.
    page.wait_for_url("**/w/allotment/")
    expect(page.locator(CARDS).first).to_be_visible()


def test_a_long_list_of_wikis_can_be_filtered(server: WebServer, visit: OpenTab) -> None:
    def many(route: Route) -> None:
        route.fulfill(json={"wikis": [{"slug": f"wiki-{n:04}"} for n in range(3000)], "total": 3000})

    page = visit(f"{server.url}healthz").page
    page.route("**/api/v1/wikis*", many)
    page.goto(server.url)
    expect(page.locator("#app\\.count")).to_have_text("3,000 wikis")
    expect(page.locator(".tiles a")).to_have_count(60)
    page.keyboard.press("/")
    page.keyboard.type("-299")
    expect(page.locator("#app\\.count")).to_have_text("10 of 3,000 wikis")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("link", name="wiki-2990")).to_be_focused()


def test_the_status_page_shows_the_index_status(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/status", wait=".figures").page
    expect(page.locator(".pill")).to_have_text("Up to date")
    numbers = page.locator(".figure")
    expect(numbers.nth(0)).to_have_text("Pages14")
    head = server.get_status("runbook")["head_revision"]
    expect(numbers.nth(5)).to_contain_text(head[:10])
    page.goto(f"{server.url}status")
    expect(page.locator(".rows .pill")).to_have_text(["Up to date", "Up to date"])
    page.get_by_role("link", name="allotment").click()
    expect(page.locator("h1")).to_have_text("Index of allotment")


def test_status_follows_a_sync_and_shows_problems_and_errors(server: WebServer, visit: OpenTab) -> None:
    calm = server.get_status("runbook")
    work = {
        "kind": "sync",
        "since": "2026-01-01T00:00:00+00:00",
        "pages_done": 40,
        "pages_total": 160,
        "chunks_embedded": 3,
    }
    error = {"code": "source-missing", "message": "the repository cannot be read", "hint": "the operator knows more"}
    problem = {"file": "a<b>.md", "reason": "binary", "detail": "the file contains binary data"}
    now = {**calm, "activity": work, "stale": True}
    page = visit(f"{server.url}healthz").page
    page.route("**/api/v1/status", lambda route: route.fulfill(json=now))
    page.goto(f"{server.url}w/runbook/status")
    expect(page.locator(".progress")).to_contain_text("40 of 160 pages")
    expect(page.get_by_role("progressbar")).to_have_attribute("max", "160")
    now["activity"] = {**work, "pages_done": 120}
    expect(page.locator(".progress")).to_contain_text("120 of 160 pages")
    now |= {"activity": None, "problems": [problem], "error": error}
    expect(page.locator(".pill")).to_have_text("Needs attention")
    expect(page.locator(".problem")).to_contain_text("The operator knows more.")
    expect(page.locator("td").first).to_have_text("a<b>.md")
    warning = {"file": "c<d>.md", "warnings": ["the frontmatter is not closed"]}
    now |= {"problems": [], "error": None, "stale": False, "pages_with_warnings": 3, "warnings": [warning]}
    expect(page.get_by_role("heading", name="Pages with warnings")).to_be_visible()
    expect(page.locator("td").first).to_have_text("c<d>.md")
    expect(page.locator("td").last).to_have_text("The frontmatter is not closed.")
    expect(page.locator("main")).to_contain_text("And 2 more.")


def test_search_and_reading_work_without_script(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", java_script_enabled=False).page
    page.get_by_role("searchbox").fill("disk is nearly full")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".card").first).to_contain_text("Database disk full")
    page.get_by_role("link", name="Database disk full").click()
    expect(page.locator("article h1")).to_have_text("Database disk full")
    page.goto(f"{server.url}w/runbook/read?page=Home")
    page.locator(".page").get_by_role("link", name="Deploying").click()
    expect(page.locator("article h1")).to_have_text("Deploying")


def test_a_private_page_is_read_with_the_key_of_the_tab(locked: tuple[WebServer, str], visit: OpenTab) -> None:
    server, token = locked
    tab = visit(f"{server.url}w/allotment/read?page=Growing/Composting", wait="text=Enter a key", expected=("401",))
    page = tab.page
    assert "heap" not in page.content()
    enter_key(page, token)
    expect(page.locator("article h1")).to_have_text("Composting")
    page.get_by_role("link", name="History").click()
    expect(page.locator(".commits li").first).to_be_visible()
    assert all(token not in url for url in tab.requests)


def test_a_private_page_offers_a_key_again_after_the_dialog_was_cancelled(
    locked: tuple[WebServer, str], visit: OpenTab
) -> None:
    server, token = locked
    url = f"{server.url}w/allotment/read?page=Growing/Composting"
    page = visit(url, wait="text=Enter a key", expected=("401",)).page
    page.get_by_role("button", name="Enter a key").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_text("A key is required.")).to_be_visible()
    assert "JavaScript" not in page.inner_text("main")
    enter_key(page, "wh_nonsense")
    expect(page.locator("main")).to_contain_text("unknown")
    assert "JavaScript" not in page.inner_text("main")
    enter_key(page, token)
    expect(page.locator("article h1")).to_have_text("Composting")
    plain = visit(url, java_script_enabled=False, expected=("401",)).page
    # Selectors by text skip this element.
    expect(plain.locator("noscript p")).to_be_visible()
    assert "Turn on JavaScript" in plain.locator("noscript p").evaluate("element => element.textContent")
    assert plain.get_by_role("button", name="Enter a key").count() == 0


def test_the_key_dialog_of_an_editor_without_access_says_what_a_key_is_for(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/edit", wait="text=Enter a key").page
    page.get_by_role("button", name="Enter a key").click()
    expect(page.locator("#app\\.key-why")).to_have_text("A key gives access to a wiki that is not public.")


def test_the_status_page_without_a_readable_wiki_offers_a_key(locked: tuple[WebServer, str], visit: OpenTab) -> None:
    server, token = locked
    page = visit(f"{server.url}status", wait=".message").page
    enter_key(page, token)
    expect(page.locator(".rows .name")).to_have_text("allotment")


def test_the_start_page_searches_in_all_wikis(server: WebServer, visit: OpenTab) -> None:
    page = visit(server.url, wait=".tiles a").page
    page.get_by_label("Search all wikis").fill("the disk of the database is nearly full")
    first = page.locator(f"{CARDS} >> nth=0")
    expect(first).to_contain_text("Database disk full")
    expect(first.locator(".wiki-label")).to_have_text("runbook")
    first.get_by_role("link").first.click()
    expect(page.locator("#app\\.preview-name")).to_have_text("Database disk full")


# One step of the browser, so that no answer can come in between.
_TYPE_AND_PRESS = """([text, key]) => {
  const input = document.getElementById("app.q");
  input.focus();
  input.value = text;
  input.dispatchEvent(new Event("input"));
  input.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}"""


def test_enter_right_after_the_last_letter_searches_and_opens_no_other_wiki(server: WebServer, visit: OpenTab) -> None:
    page = visit(server.url, wait=".tiles a").page
    page.evaluate(_TYPE_AND_PRESS, ["the disk of the database is nearly full", "Enter"])
    expect(page.locator(f"{CARDS} >> nth=0")).to_contain_text("Database disk full")
    page.keyboard.press("Enter")
    expect(page.locator("#app\\.preview-name")).to_have_text("Database disk full")


def test_the_focus_stays_on_the_start_page_when_its_lists_are_replaced(server: WebServer, visit: OpenTab) -> None:
    page = visit(server.url, wait=".tiles a").page
    page.evaluate(_TYPE_AND_PRESS, ["the disk of the database is nearly full", "ArrowDown"])
    first = page.locator(f"{CARDS} h2 a >> nth=0")
    expect(first).to_have_text("Database disk full")
    expect(page.locator("#app\\.q")).to_be_focused()
    first.focus()
    page.evaluate(
        "() => { document.getElementById('app.q').value = 'what may go on the compost heap';"
        " document.getElementById('app.q').dispatchEvent(new Event('input')); }"
    )
    expect(first).to_have_text("Composting")
    expect(first).to_be_focused()


def test_an_error_on_the_start_page_is_not_dimmed(server: WebServer, visit: OpenTab) -> None:
    page = visit(server.url, wait=".tiles a", expected=("status of 500",)).page
    page.route("**/api/v1/search*", lambda route: route.fulfill(status=500, json={"detail": "Internal error."}))
    page.get_by_label("Search all wikis").fill("water")
    expect(page.locator(".message.problem")).to_contain_text("Internal error.")
    expect(page.locator("#app\\.state")).to_have_css("opacity", "1")


def test_the_start_page_says_that_nothing_is_clearly_relevant(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}?q=zzqqxxy+blorptang", wait=CARDS).page
    expect(page.locator("#app\\.count")).to_have_text("2 wikis searched")
    expect(page.locator("#app\\.state")).to_contain_text("Nothing here is clearly relevant.")


def test_a_full_page_opens_from_the_preview_with_the_words_marked(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=ledger+error+codes", wait=CARDS).page
    page.locator(f"{CARDS} h2 a", has_text="Ledger").first.click()
    link = page.get_by_role("link", name="Full page")
    expect(link).to_have_attribute("href", re.compile(":~:text="))
    link.click()
    expect(page.locator("article h1")).to_have_text("Ledger")
    expect(page.locator(".page mark").first).to_be_visible()
    # The scripts of the new page run after its text is shown.
    page.wait_for_load_state()
    page.keyboard.press("Control+k")
    expect(page.locator("#app\\.q")).to_be_focused()


def test_a_wiki_without_pages_yet_does_not_need_attention(server: WebServer, visit: OpenTab) -> None:
    error = {"code": "no-pages-yet", "message": "This wiki has no pages yet.", "hint": "Create the first page."}
    status = {**server.get_status("runbook"), "pages": 0, "indexed_revision": None, "error": error}
    page = visit(f"{server.url}healthz").page
    page.route("**/api/v1/status", lambda route: route.fulfill(json=status))
    page.goto(f"{server.url}w/runbook/status")
    expect(page.locator(".pill")).to_have_text("No pages yet")
    expect(page.locator("main")).to_contain_text("Create the first page.")
