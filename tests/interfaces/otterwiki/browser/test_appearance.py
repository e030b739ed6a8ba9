"""Permissions, index administration and appearance inside Otterwiki."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.browser import BrowserTab, OpenTab
from tests.support.paths import ROOT, SOURCES

pytestmark = pytest.mark.model

CHECKS = (ROOT / "tests" / "support" / "accessibility.js").read_text(encoding="utf-8")
PLUGIN = SOURCES / "wikiholt" / "interfaces" / "otterwiki"
SEARCH = "/-/wikiholt/search"
ADMIN = "/-/wikiholt/admin"
PHONE = {"width": 375, "height": 720}
VIEWS = {
    "search": (f"{SEARCH}?q=database&tag=database", "#app\\.active-filters:not([hidden])", "main"),
    "nothing asked": (SEARCH, "#app\\.results .card", "main"),
    "nothing relevant": (f"{SEARCH}?q=quantum+chromodynamics", ".message", "main"),
    "a page": ("/growing/composting", "#app\\.related:not([hidden])", "#app\\.related"),
    "the index": (ADMIN, ".figures", "main"),
}


@pytest.fixture(scope="module")
def administrator(readers: OtterwikiServer) -> Iterator[httpx.Client]:
    with closing(readers.login()) as session:
        yield session


def open_signed_in(
    visit: OpenTab, readers: OtterwikiServer, session: httpx.Client, address: str, wait: str, **options: object
) -> BrowserTab:
    cookies = [{"name": name, "value": value, "url": readers.url} for name, value in session.cookies.items()]
    return visit(f"{readers.url}{address}", wait=wait, storage_state={"cookies": cookies, "origins": []}, **options)


def check_accessibility(page: Page, within: str) -> None:
    result = page.evaluate(CHECKS, within)
    assert result["faults"] == []
    assert result["measured"] > 1


@pytest.mark.parametrize("view", VIEWS)
def test_text_has_contrast_elements_have_names_and_the_layout_fits_a_phone(
    readers: OtterwikiServer, administrator: httpx.Client, visit: OpenTab, view: str
) -> None:
    address, wait, within = VIEWS[view]
    page = open_signed_in(visit, readers, administrator, address, wait, viewport=PHONE, color_scheme="light").page
    widths = "[document.documentElement, document.querySelector('#content-wrapper')].map((at) => at.scrollWidth)"
    assert page.evaluate(widths) == [375, 375]
    check_accessibility(page, within)
    page.evaluate("halfmoon.toggleDarkMode()")
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(page.locator("body.dark-mode")).to_have_count(1)
    check_accessibility(page, within)


def test_suggestions_have_contrast_and_fit_any_window(readers: OtterwikiServer, visit: OpenTab) -> None:
    options = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    page = visit(f"{readers.url}/rules/bonfires", wait="body.dark-mode", **options).page
    with page.expect_response("**/api/v1/search?q=what+may+go+on+the+compost+heap&**"):
        page.fill("#search-query", "what may go on the compost heap")
    panel = page.locator(".suggestions")
    expect(panel).to_contain_text("Composting")
    page.keyboard.press("ArrowDown")
    for width in (375, 640, 800):
        page.set_viewport_size({"width": width, "height": 720})
        box = panel.bounding_box()
        assert box is not None
        assert 0 <= box["x"] < box["x"] + box["width"] <= width
    check_accessibility(page, ".suggestions")
    page.evaluate("halfmoon.toggleDarkMode()")
    check_accessibility(page, ".suggestions")


def test_administrators_see_the_index_status_and_rebuild_it(
    readers: OtterwikiServer, administrator: httpx.Client, visit: OpenTab
) -> None:
    page = open_signed_in(visit, readers, administrator, "/-/admin", "text=Search index").page
    page.get_by_role("link", name="Search index").click()
    expect(page.locator(".pill")).to_have_text("Up to date")
    expect(page.locator(".figures")).to_contain_text(readers.get_head()[:10])
    expect(page.locator("td").first).to_have_text("scanned letter.md")
    page.get_by_role("button", name="Estimate").click()
    expect(page.locator("#app\\.job")).to_contain_text("free on the disk")
    generation = administrator.get("/api/v1/status").json()["generation"]
    page.get_by_role("button", name="Rebuild").click()
    expect(page.locator("#app\\.job")).to_contain_text("Rebuilt")
    assert administrator.get("/api/v1/status").json()["generation"] > generation


def test_the_progress_of_running_work_is_shown(
    readers: OtterwikiServer, administrator: httpx.Client, visit: OpenTab
) -> None:
    page = open_signed_in(visit, readers, administrator, ADMIN, ".figures").page
    calm = administrator.get("/api/v1/status").json()
    work = {
        "kind": "reindex",
        "since": "2026-01-01T00:00:00+00:00",
        "pages_done": 4,
        "pages_total": 16,
        "chunks_embedded": 3,
    }
    job = {
        **administrator.get("/api/v1/reindex/status").json(),
        "status": "in_progress",
        "pages_indexed": 4,
        "pages_total": 16,
    }
    page.route("**/api/v1/status", lambda route: route.fulfill(json={**calm, "activity": work}))
    page.route("**/api/v1/reindex/status", lambda route: route.fulfill(json=job))
    page.reload()
    expect(page.get_by_role("progressbar")).to_have_attribute("max", "16")
    expect(page.locator("#app\\.job")).to_have_text("Rebuilding: 4 of 16 pages.")
    expect(page.get_by_role("button", name="Rebuild")).to_be_disabled()
    job |= {"status": "error", "error_message": "the disk is full"}
    expect(page.locator("#app\\.job")).to_have_text("The disk is full.")


def test_a_long_category_leaves_the_counts_in_sight(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}{SEARCH}", wait="#app\\.results .card", viewport={"width": 1300, "height": 900}).page
    long = {"value": "a category that somebody gave a very long name " * 4, "count": 7}

    def add_long_category(route: Route) -> None:
        facets = route.fetch().json()
        route.fulfill(json={**facets, "categories": [long, *facets["categories"]]})

    page.route("**/api/v1/facets?*", add_long_category)
    page.goto(f"{readers.url}{SEARCH}?q=database")
    label = page.locator(".filters label", has_text="a very long name")
    expect(label).to_contain_text("7")
    within = "(label) => label.scrollWidth <= label.clientWidth && label.getBoundingClientRect().right <= innerWidth"
    assert label.evaluate(within)


def test_the_index_is_for_administrators_alone(
    readers: OtterwikiServer, administrator: httpx.Client, visit: OpenTab
) -> None:
    assert readers.client.get(ADMIN).headers["location"].startswith("/-/login?next=")
    with closing(readers.login("reader@example.org", "just-a-reader-here")) as reader:
        assert reader.get(ADMIN).status_code == 403
        assert "menu.js" not in reader.get("/-/about").text
    assert "menu.js" in administrator.get("/-/about").text
    assert "Search index" not in readers.client.get(f"{SEARCH}?q=compost").text


def test_users_without_read_permission_see_nothing_of_the_wiki(
    browser: Browser, tmp_path: Path, visit: OpenTab
) -> None:
    settings = {"READ_ACCESS": "APPROVED", "WIKIHOLT_OTTERWIKI_DROPDOWN": False}
    pages = {"home.md": "# Home\n\nThe badger sleeps.\n"}
    with OtterwikiServer.start(tmp_path / "wiki", settings=settings, pages=pages) as closed:
        answer = closed.client.get(f"{SEARCH}?q=badger")
        assert (answer.status_code, "badger" in answer.text.replace("q%3Dbadger", "")) == (302, False)
        assert answer.headers["location"].startswith("/-/login?next=")
        assert "wikiholt" not in closed.client.get("/-/login").text
        with closing(closed.login()) as member:
            closed.wait_until_found("badger", "home")
            html = member.get("/").text
            assert "search_box.js" in html
            assert "suggestions.js" not in html
            page = open_signed_in(visit, closed, member, "/", "article.page", fresh=True).page
            page.fill("#search-query", "badger")
            page.keyboard.press("Enter")
            page.wait_for_url("**/-/wikiholt/search?q=badger")
            expect(page.locator("#app\\.results .card h2")).to_have_text(["Home"])
            page.close()  # before the server stops


def test_static_files_are_cached_by_version_and_nothing_else_is_served(readers: OtterwikiServer) -> None:
    base = "/-/wikiholt/static"
    wanted = re.findall(rf'"({base}/\w+/[\w.]+)"', readers.client.get(f"{SEARCH}?q=compost").text)
    assert len(wanted) > 10
    for name in wanted:
        answer = readers.client.get(name)
        assert (answer.status_code, "immutable" in answer.headers["cache-control"]) == (200, True), name
    assert readers.client.get(f"{base}/0000/search.js").headers["cache-control"] == "no-store"
    for name in ("nope.js", "layout.html", "..%2fpages.py", "%2e%2e/pages.py", "wiki.css%00"):
        assert readers.client.get(f"{base}/0000/{name}").status_code == 404, name


def test_search_works_under_a_policy_without_inline_scripts(readers: OtterwikiServer, visit: OpenTab) -> None:
    policy = "script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'"
    page = visit(f"{readers.url}/-/about", expected=("Content Security Policy", "halfmoon")).page

    def strict(route: Route) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, "content-security-policy": policy})

    page.route("**/-/wikiholt/search", strict)
    page.goto(f"{readers.url}{SEARCH}")
    page.fill("#app\\.q", "what may go on the compost heap")
    expect(page.locator("#app\\.results .card").first).to_contain_text("Composting")


def test_plugin_templates_and_scripts_need_no_lax_policy() -> None:
    for template in (PLUGIN / "templates").rglob("*.html"):
        text = template.read_text(encoding="utf-8")
        assert not re.search(r"<script|\son\w+=|\sstyle=|javascript:", text), template
    for script in (PLUGIN / "static").glob("*.js"):
        text = script.read_text(encoding="utf-8")
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|https?://", text
        )
