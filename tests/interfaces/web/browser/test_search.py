"""Searching in a browser: typing, modes, filters, the URL, the keyboard."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.browser import OpenTab, wait_for_filters
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
    expect(page.locator("#app\\.count")).to_contain_text("14 pages searched")
    page.goto(f"{server.url}w/allotment/")
    page.fill(BOX, "what may go on the compost heap")
    expect(page.locator("mark", has_text="heap").first).to_be_visible()
    expect(page).to_have_title(re.compile("^what may go on the compost heap"))


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


def test_only_the_newest_answer_is_shown_and_one_request_runs_while_typing(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/runbook/", wait=CARDS, fresh=True)
    page = tab.page
    pending: list[Route] = []
    page.route("**/api/v1/search?q=certificate*", lambda route: pending.append(route))  # noqa: PLW0108 - Playwright needs a function
    page.fill(BOX, "certificate")
    page.wait_for_function("() => document.body.classList.contains('waiting')")
    # The second search cancels the first one.
    with page.expect_event("requestfailed", lambda request: request == pending[0].request):
        page.fill(BOX, "TRN-5031")
    expect(page.locator(FIRST)).to_contain_text("Ledger")
    stop_time(page)
    held: list[Route] = []
    page.route("**/api/v1/search?q=TRN-5031+*", lambda route: route.continue_() if held else held.append(route))
    before = sum("api/v1/search" in url for url in tab.requests)
    page.focus(BOX)
    page.keyboard.press("End")
    type_slowly(page, " connection pool", delay_ms=10)
    assert len(held) == 1
    assert "q=TRN-5031+c" not in held[0].request.url, "the others wait for this one"
    with page.expect_request("**/api/v1/search?q=TRN-5031+connection+pool&**"):
        held[0].continue_()
    expect(page.locator("#app\\.count")).to_contain_text("14 pages searched")
    page.clock.run_for(1_000)
    page.wait_for_url("**q=TRN-5031+connection+pool")
    assert sum("api/v1/search" in url for url in tab.requests) - before == 2


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
    page.wait_for_url(lambda url: "mode=" not in url)
    expect(page.locator(FIRST)).to_contain_text("by meaning")


def test_filters_narrow_the_results_and_can_be_removed(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=database", wait=f"{CARDS} >> nth=4").page
    page.check("input[name=category][value=incidents]")
    expect(page.locator("#app\\.count")).to_contain_text("4 pages searched")
    assert "category=incidents" in page.url
    wait_for_filters(page)
    page.check("input[name=tag][value=database]")
    expect(page.locator("#app\\.count")).to_contain_text("2 pages searched")
    assert set(get_names(page)) == {"Database disk full", "Slow or failing checkout"}
    wait_for_filters(page)
    page.get_by_role("button", name="Remove the filter incidents").click()
    expect(page.locator("#app\\.count")).to_contain_text("4 pages searched")
    wait_for_filters(page)
    page.get_by_role("button", name="Remove the filter database").click()
    wait_for_filters(page)
    page.check("input[name=path][value=Services]")
    expect(page.locator("#app\\.count")).to_contain_text("3 pages searched")
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
    shared = visit(page.url, wait=CARDS, fresh=True).page
    assert get_names(shared) == get_names(page)


def test_the_keyboard_is_enough(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=database", wait=f"{CARDS} >> nth=2").page
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("/")
    expect(page.locator(BOX)).to_be_focused()
    page.keyboard.press("ArrowDown")
    links = page.locator(f"{CARDS} a[data-page]")
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


def test_an_answer_before_the_first_complete_sync_names_no_revision(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS).page
    partial = {"stale": True, "indexed_revision": None, "degraded": True, "notes": ["some pages are missing"]}
    page.route("**/api/v1/search?*", lambda route: route.fulfill(json={**route.fetch().json(), **partial}))
    page.fill(BOX, "backup")
    expect(page.locator("#app\\.notes")).to_have_text("Some pages are missing.")
    expect(page.locator("#app\\.fresh")).to_be_hidden()


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
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=(str(status),), fresh=True).page
    body = {"detail": "Not now.", "hint": "", "status": status}
    times: list[int] = []

    def refuse_once(route: Route) -> None:
        times.append(1)
        if len(times) > 1:
            route.continue_()
        else:
            route.fulfill(status=status, json=body, headers={"Retry-After": "1"})

    page.route("**/api/v1/search?*", refuse_once)
    stop_time(page)
    page.fill(BOX, "backup")
    with page.expect_response("**/api/v1/search?*"):
        page.clock.run_for(500)
    expect(page.get_by_role("alert")).to_contain_text("Tries again automatically in")
    page.clock.run_for(2_000)
    expect(page.locator(FIRST)).to_contain_text("Backups")


def test_an_unreachable_server_is_an_error_and_not_an_empty_list(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=("ERR_",), fresh=True).page
    page.route("**/api/v1/search?*", lambda route: route.abort())
    stop_time(page)  # a message that is repeated after the next attempt is no alert
    page.fill(BOX, "backup")
    page.clock.run_for(500)
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")


def test_an_invalid_query_cannot_be_retried(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=***", wait=".message", expected=("422",)).page
    expect(page.get_by_role("alert")).to_contain_text("Use letters or digits.")
    expect(page.get_by_role("button", name="Try again")).to_have_count(0)


def test_what_the_server_refuses_is_an_error_only_when_typing_has_ended(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=("422",), fresh=True).page
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url) if "/search?" in request.url else None)
    stop_time(page)
    page.focus(BOX)
    page.keyboard.type('"-')
    assert not sent, "it has neither a word nor a symbol"
    page.fill(BOX, "-backup")
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    assert page.get_by_role("alert").count() == 0
    page.clock.run_for(1000)
    expect(page.get_by_role("alert")).to_contain_text("only exclusions")
    page.fill(BOX, "-backup database")
    expect(page.locator(CARDS).first).to_be_visible()
    assert len(sent) == 3


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
    page = visit(f"{server.url}w/runbook/?q=the", wait=f"{CARDS} >> nth=3").page
    shown = page.locator(CARDS).count()
    page.get_by_role("button", name="More results").click()
    expect(page.locator(f"{CARDS} h2 a").nth(shown)).to_be_focused()
    expect(page.locator(CARDS)).to_have_count(14)


# ── while the user types ─────────────────────────────────────────────────────────────────────────


def stop_time(page: Page) -> None:
    """Stop the clock of the page; a test moves it on."""
    page.clock.install()
    page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))


def type_slowly(page: Page, text: str, delay_ms: int = 90) -> None:
    """Type at an exact speed, whatever else the machine does."""
    for character in text:
        page.keyboard.press("Space" if character == " " else character)
        page.clock.run_for(delay_ms)


def test_sentences_and_filters_are_asked_for_once_the_query_is_complete(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/runbook/", wait=CARDS, fresh=True)
    page = tab.page
    page.wait_for_selector("input[name=category]")
    stop_time(page)
    before = len(tab.requests)
    page.focus(BOX)
    type_slowly(page, "the disk is full now.")
    with page.expect_request("**/ask?*"):
        page.clock.run_for(1_000)
    expect(page.locator("#app\\.count")).to_contain_text("searched")
    page.wait_for_function("() => !document.body.classList.contains('waiting')")
    sent = [url for url in tab.requests[before:] if "/api/" in url]
    asked = [url for url in sent if "/api/v1/ask?" in url]
    assert sum("/facets?" in url for url in sent) == 1, sent
    assert any("/search?q=the+disk+is+full+now." in url for url in sent)
    assert [url.partition("/ask?")[2] for url in asked] == ["q=the+disk+is+full+now.&model=false"]


def test_an_unfinished_query_keeps_the_last_results_and_is_not_judged(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/?q=compost", wait=CARDS, fresh=True).page
    names = get_names(page)

    answer = page.request.get(f"{server.url}w/allotment/api/v1/search?q=compost").json()
    nothing = {**answer, "nothing_relevant": True, "results": []}
    page.route("**/api/v1/search?*", lambda route: route.fulfill(json=nothing))
    stop_time(page)
    page.focus(BOX)
    page.keyboard.press("End")
    with page.expect_response("**/api/v1/search?*"):
        type_slowly(page, " of the whole garden")
    expect(page.locator("body")).to_have_class(re.compile("pending"))
    assert get_names(page) == names
    expect(page.locator("#app\\.state")).to_be_empty()
    page.clock.run_for(1_000)
    expect(page.locator("#app\\.state")).to_contain_text("Nothing found.")
    expect(page.locator("body")).not_to_have_class(re.compile("pending"))


def test_weak_hits_are_one_line_and_headings_of_a_page_are_grouped(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/?q=what+may+go+on+the+compost+heap", wait=CARDS).page
    expect(page.locator(FIRST)).to_contain_text("Strong match")
    expect(page.locator(f"{CARDS}.folded .snippet")).to_have_count(0)
    expect(page.locator(".divider")).to_contain_text("less likely pages")
    paths = page.locator(CARDS).evaluate_all("(cards) => cards.map((card) => card.dataset.page)")
    assert len(set(paths)) == len(paths)
    page.locator(".sections a", has_text="Not on the heap").click()
    expect(page.locator("#app\\.preview .target")).to_have_text("Not on the heap")


def test_filters_follow_the_query_and_open_folders(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/", wait="input[name=path][value=Growing]").page
    growing = page.locator("label", has=page.locator("input[name=path][value=Growing]"))
    everything = growing.locator(".number").inner_text()
    page.fill(BOX, "bonfire")
    expect(growing.locator(".number")).not_to_have_text(everything)

    def deep(route: Route) -> None:
        folders = [{"value": "Growing/Fruit", "count": 2}] if "path=Growing" in route.request.url else []
        route.fulfill(json={"pages": 2, "categories": [], "tags": [], "folders": folders, "properties": {}})

    page.route("**/api/v1/facets?*", deep)
    page.check("input[name=path][value=Growing]")
    inner = page.locator("input[name=path][value='Growing/Fruit']")
    expect(inner).to_be_visible()
    inner.check()
    page.wait_for_url("**path=Growing/Fruit")
    wait_for_filters(page)
    page.uncheck("input[name=path][value='Growing/Fruit']")
    page.wait_for_url(re.compile("path=Growing$"))


# ── shortcuts and recent searches ────────────────────────────────────────────────────────────────


def test_shortcuts_open_the_box_and_a_list_of_shortcuts(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS).page
    page.locator("body").click(position={"x": 5, "y": 5})
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(page.locator(BOX)).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator(BOX)).to_have_value("?")


def test_results_and_groups_of_filters_are_one_tab_stop_each(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=database", wait=f"{CARDS} >> nth=3").page
    page.wait_for_selector("input[name=category]")
    page.focus(BOX)
    stops = 0
    while not page.evaluate("document.activeElement.matches('#app\\\\.results a')"):
        page.keyboard.press("Tab")
        stops += 1
        assert stops < 10
    page.keyboard.press("Tab")
    assert not page.evaluate("document.activeElement.matches('#app\\\\.results a')")
    page.focus("input[name=tag] >> nth=0")
    page.keyboard.press("ArrowDown")
    expect(page.locator("input[name=tag]").nth(1)).to_be_focused()


def test_recent_searches_are_offered_and_can_be_cleared(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/?q=backup", wait=CARDS).page
    page.locator(f"{CARDS} h2 a").first.click()
    page.goto(f"{server.url}w/runbook/")
    recent = page.locator("#app\\.recent")
    expect(recent.get_by_role("link")).to_have_text(["backup"])
    recent.get_by_role("link").click()
    expect(page.locator(BOX)).to_have_value("backup")
    page.goto(f"{server.url}w/runbook/")
    recent.get_by_role("button", name="Clear the recent searches").click()
    expect(recent).to_be_hidden()
    assert page.evaluate("localStorage.length") == 0


# ── states ───────────────────────────────────────────────────────────────────────────────────────


def test_the_page_recovers_by_itself_when_the_browser_is_online_again(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/runbook/", wait=CARDS, expected=("ERR_",), fresh=True).page
    page.context.set_offline(True)
    stop_time(page)  # there is no other attempt before the browser is online
    page.fill(BOX, "backup")
    page.clock.run_for(500)
    expect(page.get_by_role("alert")).to_contain_text("The server cannot be reached.")
    page.context.set_offline(False)
    expect(page.locator(FIRST)).to_contain_text("Backups")


def test_an_empty_wiki_says_why_and_asks_less_and_less_often(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}healthz", expected=("503",), fresh=True)
    page = tab.page
    status = server.get_status("runbook") | {
        "pages": 0,
        "indexed_revision": None,
        "error": {"code": "no-commits", "message": "This wiki has no commit yet.", "hint": "Create the first page."},
    }
    problem = {"code": "nothing-indexed", "detail": "Nothing is indexed.", "hint": "", "status": 503}
    page.route("**/api/v1/*", lambda route: route.fulfill(status=503, json=problem, headers={"Retry-After": "2"}))
    page.route("**/api/v1/pages?*", lambda route: route.fulfill(status=503, json=problem, headers={"Retry-After": "2"}))
    page.route("**/api/v1/status", lambda route: route.fulfill(json=status))
    page.goto(f"{server.url}w/runbook/")
    expect(page.locator("#app\\.state")).to_contain_text("This wiki has no commit yet. Create the first page.")
    stop_time(page)
    before = len(tab.requests)
    for _ in range(20):
        page.clock.run_for(4_000)
        page.evaluate("() => fetch('/healthz')")  # its answer comes after that of an earlier request
    assert len(tab.requests) - before - 20 <= 8, "in 80 seconds"


def test_the_focus_stays_in_the_list_when_results_are_replaced(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/?q=what+may+go+on+the+compost+heap", wait=CARDS).page
    first = page.locator(f"{CARDS} h2 a >> nth=0")
    expect(first).to_have_text("Composting")
    first.focus()
    page.evaluate(
        "() => { document.getElementById('app.q').value = 'slugs';"
        " document.getElementById('app.q').dispatchEvent(new Event('input')); }"
    )
    expect(first).to_have_text("Pests")
    expect(first).to_be_focused()


def test_an_unknown_wiki_leads_to_the_start_page(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/nosuch/", wait=".message", expected=("404",)).page
    expect(page.locator(".message")).to_contain_text("There is no wiki with this name.")
    page.get_by_role("link", name="All wikis").click()
    expect(page.locator(".tiles a")).to_have_count(2)


def test_a_hit_names_the_other_pages_with_its_passage(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/runbook/", wait=CARDS, fresh=True)
    place = {"name": "Ledger", "path": "Services/Ledger", "url": "x", "file": "Services/Ledger.md", "lines": [1, 3]}

    def add_place(route: Route) -> None:
        response = route.fetch()
        document = response.json()
        document["results"][0]["also_on"] = [place]
        route.fulfill(response=response, json=document)

    tab.page.route("**/api/v1/search?*", add_place)
    tab.page.fill(BOX, "a customer was charged two times")
    others = tab.page.locator(FIRST).locator(".also-on")
    others.locator("summary").click()
    expect(others).to_have_text("Also on 1 pageServices / Ledger")
    others.locator("a").click()
    expect(tab.page.get_by_role("heading", name="Ledger").first).to_be_visible()
