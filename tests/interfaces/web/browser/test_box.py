"""The search box on a page of another origin."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.interfaces.web.browser.test_appearance import run_axe
from tests.support.browser import OpenTab
from tests.support.paths import ROOT
from tests.support.web_server import WebServer

pytestmark = pytest.mark.model

EXAMPLE = (ROOT / "docs" / "examples" / "box.html").read_text(encoding="utf-8")
POLICY = "default-src 'none'; script-src {server}; connect-src {server}; style-src 'unsafe-inline'; img-src 'self'"


def write_site(site: tuple[str, Path], server: WebServer, name: str, attributes: str = 'data-wiki="runbook"') -> str:
    """Write the example as a page that uses this server, under a strict policy. Returns its address."""
    origin, directory = site
    page = EXAMPLE.replace("http://127.0.0.1:8765/", server.url).replace('data-wiki="runbook"', attributes)
    policy = POLICY.format(server=server.url.rstrip("/"))
    meta = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    (directory / name).write_text(page.replace('<meta charset="utf-8">', meta), encoding="utf-8")
    return f"{origin}/{name}"


@pytest.fixture
def page(other_site: tuple[str, Path], server: WebServer, visit: OpenTab) -> Page:
    return open_page(write_site(other_site, server, "index.html"), visit)


def open_page(url: str, visit: OpenTab, expected: tuple[str, ...] = ()) -> Page:
    tab = visit(url, wait="wikiholt-search button", expected=("favicon", *expected))
    tab.find_foreign_requests = lambda _: []  # type: ignore[method-assign] # this page uses another server on purpose
    return tab.page


def test_the_box_searches_from_another_origin_with_the_keyboard_alone(page: Page, server: WebServer) -> None:
    page.keyboard.press("Control+k")
    box = page.get_by_role("combobox", name="Search")
    expect(box).to_be_focused()
    with page.expect_response("**/api/v1/search?q=ledger+error+codes&**"):
        page.keyboard.type("ledger error codes", delay=20)
    # The options may still be those of a part of the query, which are dimmed then.
    expect(page.locator("wikiholt-search .list")).not_to_have_class(re.compile("dim"))
    options = page.get_by_role("option")
    expect(options.first).to_contain_text("Error codes")
    expect(page.get_by_role("group").first).to_contain_text("Ledger")
    assert options.first.locator("mark").count() > 0
    expect(options.first).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    expect(options.nth(1)).to_have_attribute("aria-selected", "true")
    expect(box).to_have_attribute("aria-activedescendant", "hit-1")
    page.keyboard.press("ArrowUp")
    assert run_axe(page) == []
    page.keyboard.press("Enter")
    page.wait_for_url(f"{server.url}w/runbook/read?page=Services%2FLedger&q=ledger+error+codes#error-codes")
    expect(page.get_by_role("heading", name="Error codes")).to_be_visible()


def test_escape_and_the_button_close_and_open_the_box(page: Page) -> None:
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(page.get_by_role("button", name="Search")).to_be_focused()
    page.keyboard.press("Control+k")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_a_finished_query_without_an_answer_says_so(page: Page) -> None:
    page.keyboard.press("Control+k")
    page.keyboard.type("quantum chromodynamics of gluons")
    expect(page.get_by_role("status")).to_contain_text("Nothing")


def test_an_unknown_wiki_and_a_stopped_server_are_reported(
    other_site: tuple[str, Path], server: WebServer, visit: OpenTab
) -> None:
    url = write_site(other_site, server, "unknown.html", 'data-wiki="nowhere"')
    page = open_page(url, visit, expected=("404", "ERR_FAILED", "net::"))
    page.keyboard.press("Control+k")
    page.keyboard.type("anything")
    expect(page.get_by_role("status")).not_to_be_empty()
    assert page.get_by_role("option").count() == 0
    page.route("**/api/v1/search*", lambda route: route.abort())
    page.keyboard.type(" more")
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")


def test_a_site_chooses_its_own_links_colours_and_opener(
    other_site: tuple[str, Path], server: WebServer, visit: OpenTab
) -> None:
    attributes = 'data-wiki="runbook" data-open="h1" data-url="https://docs.example.org/{path}/#{anchor}"'
    url = write_site(other_site, server, "own.html", attributes)
    tab = visit(url, wait="h1", expected=("favicon",))
    tab.find_foreign_requests = lambda _: []  # type: ignore[method-assign]
    page = tab.page
    assert page.get_by_role("button").count() == 0
    page.get_by_role("heading", name="A site with a search box").click()
    page.keyboard.type("ledger error codes")
    option = page.get_by_role("option").first
    expect(option).to_have_attribute("href", "https://docs.example.org/Services/Ledger/#error-codes")
    expect(option.locator(".heading")).to_have_css("color", "rgb(42, 93, 176)")


def test_an_origin_that_is_not_listed_gets_no_answer(
    other_site: tuple[str, Path], locked: tuple[WebServer, str], visit: OpenTab
) -> None:
    closed, _ = locked
    url = write_site(other_site, closed, "closed.html", 'data-wiki="allotment"')
    page = open_page(url, visit, expected=("CORS", "net::", "401"))
    page.keyboard.press("Control+k")
    page.keyboard.type("compost")
    expect(page.get_by_role("status")).to_contain_text("cannot be reached")
