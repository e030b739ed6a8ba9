"""Searching in a browser: typing, modes, filters, the URL, the keyboard."""

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import OpenTab
from tests.support.web_server import WebServer

pytestmark = pytest.mark.model

CARDS = "#app\\.results .card"
FIRST = f"{CARDS} >> nth=0"
BOX = "#app\\.q"


def get_names(page: Page) -> list[str]:
    return page.locator(f"{CARDS} h2").all_inner_texts()


def test_results_appear_while_typing_and_matches_are_marked(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS).page
    expect(page.locator("#app\\.count")).to_have_text("Recently changed")
    page.locator(BOX).press_sequentially("a customer was charged two times", delay=15)
    expect(page.locator(FIRST)).to_contain_text("Duplicate payments")
    expect(page.locator("#app\\.count")).to_contain_text("of 14")
    page.fill(BOX, "disk alarm")
    expect(page.locator("mark", has_text="disk").first).to_be_visible()
    assert page.title().startswith("disk alarm")


def test_a_correction_is_shown_as_text_with_a_link_to_the_original(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS).page
    page.fill(BOX, "certifcate <img src=x onerror=window.fooled=1>")
    correction = page.locator("#app\\.notes .correction")
    expect(correction.locator("strong")).to_have_text("certificate <img src=x onerror=window.fooled=1>")
    expect(page.locator("mark", has_text="certificate").first).to_be_visible()
    assert page.locator(".found img").count() == 0
    correction.locator("a").click()
    page.wait_for_url("**q=%2Bcertifcate**")
    expect(page.locator(FIRST)).to_be_visible()
    expect(correction).to_have_count(0)
    assert page.evaluate("window.fooled") is None


def test_only_the_newest_answer_is_shown_and_typing_is_debounced(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/runbook/", wait=CARDS)
    page = tab.page
    pending: list[Route] = []
    page.route("**/api/v1/search?q=certificate*", lambda route: pending.append(route))  # noqa: PLW0108 - Playwright needs a function
    page.fill(BOX, "certificate")
    page.wait_for_function("() => document.body.classList.contains('waiting')")
    with page.expect_event("requestfailed") as failed:
        page.fill(BOX, "TRN-5031")
    assert failed.value == pending[0].request, "the second search cancels the first one"
    expect(page.locator(FIRST)).to_contain_text("Ledger")
    before = sum("api/v1/search" in url for url in tab.requests)
    page.locator(BOX).press_sequentially(" connection pool", delay=10)
    expect(page.locator("#app\\.count")).to_contain_text("of 14")
    page.wait_for_url("**q=TRN-5031+connection+pool")
    assert sum("api/v1/search" in url for url in tab.requests) - before <= 3


def test_the_three_modes_send_different_requests_and_show_different_results(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/runbook/?q=a+customer+was+charged+two+times", wait=CARDS)
    page = tab.page
    page.get_by_label("Words").check()
    expect(page.locator(FIRST)).to_contain_text("by words")
    assert "mode=keyword" in page.url
    page.get_by_label("Meaning").check()
    expect(page.locator(FIRST)).to_contain_text("by meaning")
    expect(page.locator(FIRST)).not_to_contain_text("words")
    assert {"mode=keyword", "mode=semantic"} <= {part for url in tab.requests for part in url.split("&")}
    page.get_by_label("Both").check()
    expect(page.locator(FIRST)).to_contain_text("by meaning")
    assert "mode=" not in page.url


def test_filters_narrow_the_results_and_can_be_removed(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=database", wait=f"{CARDS} >> nth=4").page
    page.check("input[name=category][value=incidents]")
    expect(page.locator("#app\\.count")).to_contain_text("of 4")
    assert "category=incidents" in page.url
    page.check("input[name=tag][value=database]")
    expect(page.locator("#app\\.count")).to_contain_text("of 2")
    assert set(get_names(page)) == {"Database disk full", "Slow or failing checkout"}
    page.get_by_role("button", name="Remove the filter incidents").click()
    expect(page.locator("#app\\.count")).to_contain_text("of 4")
    page.get_by_role("button", name="Remove the filter database").click()
    page.check("input[name=path][value=Services]")
    expect(page.locator("#app\\.count")).to_contain_text("of 3")
    assert "path=Services" in page.url


def test_filters_without_a_query_list_pages(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?tag=payments", wait=CARDS).page
    expect(page.locator("#app\\.count")).to_have_text("2 pages with these filters")
    assert get_names(page) == ["Duplicate payments", "Ledger"]


def test_the_url_contains_the_search_and_the_back_button_works(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/", wait=CARDS).page
    page.fill(BOX, "bonfire")
    expect(page.locator(FIRST)).to_contain_text("Bonfires")
    page.get_by_label("Words").check()
    page.wait_for_url("**mode=keyword")
    page.go_back()
    expect(page.get_by_label("Both")).to_be_checked()
    expect(page.locator(BOX)).to_have_value("bonfire")
    page.go_back()
    expect(page.locator(BOX)).to_have_value("")
    expect(page.locator("#app\\.count")).to_have_text("Recently changed")
    page.go_forward()
    expect(page.locator(FIRST)).to_contain_text("Bonfires")
    shared = visit(page.url, wait=CARDS).page
    assert get_names(shared) == get_names(page)


def test_the_keyboard_is_enough(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=database", wait=f"{CARDS} >> nth=2").page
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("/")
    expect(page.locator(BOX)).to_be_focused()
    page.keyboard.press("ArrowDown")
    links = page.locator(f"{CARDS} h2 a")
    expect(links.nth(0)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(links.nth(1)).to_be_focused()
    page.keyboard.press("End")
    expect(links.last).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    expect(page.locator(BOX)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#app\\.preview")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#app\\.preview")).to_be_hidden()
    page.keyboard.press("Escape")
    expect(page.locator(BOX)).to_have_value("")


def test_nothing_relevant_is_said_plainly(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/?q=quantum+chromodynamics+lattice", wait=CARDS).page
    expect(page.locator("#app\\.state")).to_contain_text("Nothing here is clearly relevant.")
    page.goto(f"{server.url}w/allotment/?q=zzyzx&mode=keyword")
    expect(page.locator("#app\\.state")).to_contain_text("Nothing found.")
    page.get_by_role("button", name="Search by meaning too").click()
    expect(page.locator("#app\\.state")).to_contain_text("Nothing here is clearly relevant.")


def test_an_answer_that_is_stale_or_degraded_says_so(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS).page

    def behind(route: Route) -> None:
        document = route.fetch().json()
        log = page.request.get(f"{server.url}w/runbook/api/v1/changelog").json()["entries"]
        old = log[2]["revision"]
        route.fulfill(
            json={**document, "stale": True, "indexed_revision": old, "degraded": True, "notes": ["By words alone."]}
        )

    page.route("**/api/v1/search?*", behind)
    page.fill(BOX, "backup")
    expect(page.locator("#app\\.fresh")).to_have_text("The index is 2 commits behind")
    expect(page.locator("#app\\.notes")).to_have_text("By words alone.")


def test_errors_show_the_hint_of_the_server_and_can_be_retried(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=("503",)).page
    body = {"detail": "this wiki is not indexed yet", "hint": "try again in a moment", "status": 503}
    page.route("**/api/v1/search?*", lambda route: route.fulfill(status=503, json=body))
    page.fill(BOX, "backup")
    expect(page.get_by_role("alert")).to_contain_text("This wiki is not indexed yet.")
    expect(page.get_by_role("alert")).to_contain_text("Try again in a moment.")
    page.unroute("**/api/v1/search?*")
    page.get_by_role("button", name="Try again").click()
    expect(page.locator(FIRST)).to_contain_text("Backups")


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_of_the_server_is_respected(server: WebServer, visit: OpenTab, status: int) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=(str(status),)).page
    body = {"detail": "Not now.", "hint": "", "status": status}
    times: list[int] = []

    def refuse_once(route: Route) -> None:
        times.append(1)
        if len(times) > 1:
            route.continue_()
        else:
            route.fulfill(status=status, json=body, headers={"Retry-After": "1"})

    page.route("**/api/v1/search?*", refuse_once)
    page.fill(BOX, "backup")
    expect(page.get_by_role("alert")).to_contain_text("Tries again automatically in")
    expect(page.locator(FIRST)).to_contain_text("Backups")


def test_an_unreachable_server_is_an_error_and_not_an_empty_list(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=("ERR_",)).page
    page.route("**/api/v1/search?*", lambda route: route.abort())
    page.fill(BOX, "backup")
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")


@pytest.mark.parametrize(
    "text", ["<img src=x onerror=alert(1)>", "' \" < > &", "当番の引き継ぎ 🦦", "-", '"', "%00%ff"]
)
def test_unusual_queries_are_shown_as_text(server: WebServer, visit: OpenTab, text: str) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=("422",)).page
    page.fill(BOX, text)
    page.wait_for_function("() => location.search.startsWith('?q=')")
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    expect(page.locator(BOX)).to_have_value(text)
    assert page.locator("main img").count() == 0
    page.reload()
    expect(page.locator(BOX)).to_have_value(text)


def test_more_results_are_appended_and_the_first_gets_the_focus(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=the", wait=f"{CARDS} >> nth=9").page
    page.get_by_role("button", name="More results").click()
    expect(page.locator(CARDS)).to_have_count(14)
    expect(page.locator(f"{CARDS} h2 a").nth(10)).to_be_focused()
