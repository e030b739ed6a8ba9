"""Searching inside a real Otterwiki: the search page, the search box of every page, related pages."""

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.browser import OpenTab

pytestmark = pytest.mark.model

SEARCH = "/-/wikiholt/search"
CARDS = "#app\\.results .card"
LINKS = f"{CARDS} h2 a"
BOX = "#app\\.q"
NAVBAR = "#search-query"
OPTIONS = ".suggestions [role=option]"
RELATED_PAGES = "#app\\.related"
PHONE = {"width": 390, "height": 760}


def get_names(page: Page) -> list[str]:
    return page.locator(f"{CARDS} h2").all_inner_texts()


def count_searches(requests: list[str]) -> int:
    return sum("/api/v1/search?" in url for url in requests)


def test_results_appear_while_typing_and_link_to_the_heading(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}{SEARCH}", wait=CARDS).page
    expect(page.locator("#app\\.count")).to_have_text("Recently changed")
    expect(page.locator(BOX)).to_be_focused()
    page.keyboard.type("give the money back refund")
    expect(page.locator(CARDS).first).to_contain_text("Duplicate payments")
    page.fill(BOX, "disk alarm")
    expect(page.locator("mark", has_text="alarm").first).to_be_visible()
    page.wait_for_url("**search?q=disk+alarm")
    expect(page).to_have_title(re.compile("^disk alarm"))
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    page.keyboard.press("ArrowDown")
    expect(page.locator(LINKS).first).to_be_focused()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.wait_for_selector("article.page")
    assert page.evaluate("Boolean(document.getElementById(decodeURIComponent(location.hash.slice(1))))")
    page.go_back()
    expect(page.locator(CARDS).first).to_contain_text("disk")


def test_a_correction_is_shown_by_server_and_script_with_a_link_to_the_original(
    readers: OtterwikiServer, visit: OpenTab
) -> None:
    page = visit(f"{readers.url}{SEARCH}?q=compst+%3Cimg+src%3Dx+onerror%3Dwindow.fooled%3D1%3E", wait=CARDS).page
    correction = page.locator("#app\\.notes .correction")
    expect(correction.locator("strong")).to_have_text("compost <img src=x onerror=window.fooled=1>")
    page.fill(BOX, "compst heap")
    expect(correction.locator("strong")).to_have_text("compost heap")
    correction.locator("a").click()
    page.wait_for_url("**q=%2Bcompst+heap")
    expect(page.locator(CARDS).first).to_be_visible()
    expect(correction).to_have_count(0)
    assert page.evaluate("window.fooled") is None


def test_the_server_renders_the_first_results_and_the_script_continues(
    readers: OtterwikiServer, visit: OpenTab
) -> None:
    tab = visit(f"{readers.url}{SEARCH}?q=compost+heap", wait="#app\\.filters:not([hidden])")
    page = tab.page
    assert count_searches(tab.requests) == 0
    before = get_names(page)
    assert before[0] == "Composting"
    page.get_by_label("Meaning").check()
    expect(page.locator(CARDS).first).not_to_contain_text("words")
    page.get_by_label("Both").check()
    page.wait_for_url("**search?q=compost+heap")
    expect(page.locator(CARDS).first).to_contain_text("meaning and words")
    # The script asks for more passages, and shows those of a page in one card.
    assert get_names(page)[: len(before)] == before
    assert count_searches(tab.requests) == 2
    page.go_back()
    expect(page.get_by_label("Meaning")).to_be_checked()


def test_the_search_box_suggests_pages_and_works_by_keyboard(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}/rules/bonfires", wait="article.page").page
    box = page.locator(NAVBAR)
    expect(box).to_have_role("combobox")
    page.keyboard.press("/")
    expect(box).to_be_focused()
    with page.expect_response("**/api/v1/search?q=what+may+go+on+the+compost+heap&**"):
        page.keyboard.type("what may go on the compost heap")
    # The options may still be those of a part of the query.
    expect(page.locator(OPTIONS).last).to_have_attribute("href", re.compile("q=what.may.go.on.the.compost.heap$"))
    expect(page.locator(OPTIONS).first).to_contain_text("Composting")
    expect(box).to_have_attribute("aria-expanded", "true")
    assert box.get_attribute("aria-activedescendant") is None
    page.keyboard.press("ArrowDown")
    chosen = page.locator(OPTIONS).first
    expect(chosen).to_have_attribute("aria-selected", "true")
    expect(box).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "-")
    expect(page.locator(".navbar [role=status]")).to_contain_text("use the arrow keys")
    page.keyboard.press("Escape")
    expect(page.locator(".suggestions")).to_be_hidden()
    expect(box).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowDown")
    expect(page.locator(OPTIONS).first).to_be_visible()
    page.keyboard.press("ArrowUp")
    expect(page.locator(OPTIONS).last).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/growing/composting", re.IGNORECASE))
    page.fill(NAVBAR, "slugs & snails")
    page.keyboard.press("Enter")
    page.wait_for_url("**/-/wikiholt/search?q=slugs+%26+snails")
    assert get_names(page)[0] == "Pests"


def test_only_the_newest_suggestions_are_shown_and_a_click_opens_one(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}/rules/bonfires", wait="article.page").page
    pending: list[Route] = []
    page.route("**/api/v1/search?q=certificate&*", lambda route: pending.append(route))  # noqa: PLW0108 - Playwright needs a function
    with page.expect_request("**/api/v1/search?q=certificate&*"):
        page.fill(NAVBAR, "certificate")
    with page.expect_event("requestfailed") as failed:
        page.fill(NAVBAR, "TRN-5031")
    assert "certificate" in failed.value.url
    expect(page.locator(OPTIONS).first).to_contain_text("Ledger")
    page.locator(OPTIONS).first.click()
    page.wait_for_selector("article.page h1:has-text('Ledger')")


def test_errors_are_shown_and_the_search_box_keeps_working(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}/rules/bonfires", wait="article.page", expected=("503", "500", "401")).page
    problem = {"code": "index-missing", "detail": "This wiki is not indexed yet.", "hint": "Wait."}
    page.route("**/api/v1/search?q=soon&*", lambda route: route.fulfill(status=503, json=problem))
    page.fill(NAVBAR, "soon")
    expect(page.locator(".suggestions")).to_contain_text("for the first time")
    expect(page.locator(NAVBAR)).to_have_attribute("aria-expanded", "false")
    page.goto(f"{readers.url}{SEARCH}")
    page.route("**/api/v1/search?q=broken&*", lambda route: route.fulfill(status=500, json={"detail": "it is broken"}))
    page.route("**/api/v1/search?q=out&*", lambda route: route.fulfill(status=401, json={"detail": "you are out"}))
    page.fill(BOX, "broken")
    expect(page.get_by_role("alert")).to_contain_text("It is broken.")
    expect(page.get_by_role("button", name="Try again")).to_be_visible()
    page.fill(BOX, "out")
    expect(page.get_by_role("link", name="Log in")).to_have_attribute(
        "href", f"{readers.url}/-/login?next=%2F-%2Fwikiholt%2Fsearch%3Fq%3Dout"
    )
    page.fill(BOX, "slugs")
    expect(page.locator(CARDS).first).to_contain_text("Pests")


def test_the_first_indexing_shows_progress_and_the_search_continues_by_itself(
    readers: OtterwikiServer, visit: OpenTab
) -> None:
    page = visit(f"{readers.url}{SEARCH}", wait=CARDS, expected=("503",)).page
    calm = readers.client.get("/api/v1/status").json()
    work = {
        "kind": "sync",
        "since": "2026-01-01T00:00:00+00:00",
        "pages_done": 40,
        "pages_total": 160,
        "chunks_embedded": 3,
    }
    now = {**calm, "indexed_revision": None, "activity": work}
    ready: list[bool] = []

    def search(route: Route) -> None:
        if ready:
            route.continue_()
        else:
            route.fulfill(status=503, json={"code": "index-missing", "detail": "not yet", "hint": ""})

    page.route("**/api/v1/search?*", search)
    page.route("**/api/v1/status", lambda route: route.fulfill(json=now))
    page.fill(BOX, "slugs")
    expect(page.get_by_role("alert")).to_contain_text("for the first time")
    expect(page.locator(".first-index")).to_contain_text("40 of 160 pages")
    now["activity"] = {**work, "pages_done": 120}
    expect(page.locator(".first-index")).to_contain_text("120 of 160 pages")
    ready.append(True)
    now |= {"activity": None, "indexed_revision": calm["indexed_revision"]}
    expect(page.locator(CARDS).first).to_contain_text("Pests")


def test_search_works_without_script(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}{SEARCH}?q=database&tag=database", java_script_enabled=False).page
    assert page.locator(CARDS).count() == 4
    page.locator("input[name=tag]").uncheck()
    page.locator(BOX).fill("what may go on the heap")
    page.get_by_role("button", name="Search", exact=True).click()
    expect(page.locator(CARDS)).to_have_count(10)
    assert "tag=" not in page.url
    page.get_by_role("link", name="More results").click()
    expect(page.locator(CARDS)).to_have_count(20)
    page.get_by_role("link", name="Search by regular expression").click()
    expect(page.locator("input[name=query]")).to_have_value("what may go on the heap")
    page.goto(f"{readers.url}{SEARCH}?q=what+may+go+on+the+compost+heap")
    page.get_by_role("link", name="Composting").first.click()
    expect(page.locator("article.page h1")).to_have_text("Composting")


def test_backlinks_and_related_pages_are_shown_beside_or_below_a_page(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}/growing/composting", wait=f"{RELATED_PAGES}:not([hidden])").page
    assert page.evaluate("Boolean(document.getElementById('app.related').closest('#column-extra'))")
    linking = page.locator("details", has_text="Pages that link here")
    expect(linking.get_by_role("link", name="Bonfires")).to_be_visible()
    related = page.locator(f"{RELATED_PAGES} details", has_text="Related pages")
    expect(related.get_by_role("link", name="Pests")).to_be_visible()
    assert related.get_by_role("link", name="Bonfires").count() == 0, "backlinks are not repeated as related pages"
    page = visit(f"{readers.url}/growing/composting", wait=f"{RELATED_PAGES}:not([hidden])", viewport=PHONE).page
    assert page.evaluate("Boolean(document.getElementById('app.related').closest('#column-main'))")
    page.locator(RELATED_PAGES).get_by_role("link", name="Bonfires").click()
    expect(page.locator("article.page h1")).to_contain_text("Bonfires")


def test_a_page_without_related_pages_is_unchanged_and_does_not_wait(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}/-/about", expected=("500", "404")).page
    page.route("**/api/v1/**", lambda route: route.fulfill(status=500, json={"detail": "no"}))
    with page.expect_response("**/api/v1/similar?*"), page.expect_response("**/api/v1/links/**"):
        page.goto(f"{readers.url}/growing/composting")
    expect(page.locator("article.page h1")).to_have_text("Composting")
    expect(page.locator(RELATED_PAGES)).to_be_hidden()
    html = readers.client.get("/growing/composting").text
    assert "Related pages" not in html
    assert readers.client.get("/no such page").status_code == 404


def test_page_content_is_shown_as_text_and_never_runs(readers: OtterwikiServer, visit: OpenTab) -> None:
    page = visit(f"{readers.url}{SEARCH}?q=zebra+stripes", wait="#app\\.filters:not([hidden])").page
    for script in (True, False):
        first = page.locator(CARDS).first
        expect(first).to_contain_text("Zebra <img src=x onerror=window.fooled=1>")
        expect(first.locator("img, script, svg, b")).to_have_count(0)
        if script:
            page.get_by_label("Words").check()
            page.wait_for_url("**mode=keyword")
            expect(first).to_contain_text("by words")
    expect(page.locator(".filters")).to_contain_text("<b onclick=window.fooled=1>category</b>")
    page.goto(f"{readers.url}/rules/bonfires")
    page.fill(NAVBAR, "okapi")
    expect(page.locator(OPTIONS).first).to_contain_text("Okapi")
    page.goto(f"{readers.url}/zebra")
    expect(page.locator(f"{RELATED_PAGES} a").first).to_be_visible()
    assert page.locator(f"{RELATED_PAGES} img, {RELATED_PAGES} script, .wikiholt img").count() == 0
    page.goto(
        f"{readers.url}{SEARCH}?q=%22%3E%3Cimg+src%3Dx+onerror%3Dwindow.fooled%3D1%3E&tag=%3Cimg+src%3Dx+onerror%3Dwindow.fooled%3D1%3E"
    )
    expect(page.locator(BOX)).to_have_value('"><img src=x onerror=window.fooled=1>')
    assert page.evaluate("window.fooled") is None


@pytest.mark.parametrize(
    "query", ["q=a&n=x", "q=a&n=0", "q=a&mode=nope", "q=a&since=never", "q=%00", "q=%ff", f"q={'a' * 2001}"]
)
def test_an_invalid_query_string_shows_an_error_and_keeps_the_page(readers: OtterwikiServer, query: str) -> None:
    answer = readers.client.get(f"{SEARCH}?{query}")
    assert answer.status_code == 200
    assert "message problem" in answer.text or 'class="card' in answer.text
    assert "Traceback" not in answer.text
    assert "Composting" in readers.client.get(f"{SEARCH}?q=compost").text
