"""The answer above the results of a search."""

import re

import pytest
from playwright.sync_api import expect

from tests.interfaces.web.browser.test_appearance import check_accessibility
from tests.support.browser import OpenTab
from tests.support.web_server import WebServer

pytestmark = pytest.mark.model

ANSWER = "#app\\.answer"
QUESTION = "how long does the compost heap take"


def test_a_question_is_answered_above_the_results_with_links_to_the_lines(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/?q={QUESTION.replace(' ', '+')}", wait="#app\\.results .card").page
    expect(page.locator(f"{ANSWER} h2")).to_have_text("From this wiki")
    first = page.locator(f"{ANSWER} li a").first
    expect(first).to_have_attribute("href", re.compile(r"^read\?page=.+#.*:~:text="))
    expect(page.locator(f"{ANSWER} .place").first).to_contain_text(".md:")
    check_accessibility(page)
    path = page.locator(f"{ANSWER} .place a").first.inner_text()
    first.click()
    expect(page.locator("article h1")).to_have_text(path)


def test_a_follow_up_is_asked_after_the_question(server: WebServer, visit: OpenTab) -> None:
    page = visit(f"{server.url}w/allotment/?q={QUESTION.replace(' ', '+')}", wait=ANSWER).page
    with page.expect_request(lambda request: "/ask?" in request.url and "after=" in request.url) as sent:
        page.get_by_label("Ask a follow-up question").fill("and what may go on it?")
        page.keyboard.press("Enter")
    assert "after=how+long" in sent.value.url
    expect(page.locator(f"{ANSWER} .place").first).to_have_text("and what may go on it?")


def test_nothing_is_answered_while_the_user_types_or_without_a_question(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/allotment/", wait="#app\\.results .card")
    page = tab.page
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/ask?" in request.url else None)
    page.get_by_role("searchbox").press_sequentially("how long does the compost heap ta", delay=30)
    assert asked == []
    expect(page.locator(ANSWER)).to_be_visible()
    for query in ("compost", "quantum chromodynamics of the lunar surface"):
        page.goto(f"{server.url}w/allotment/?q={query.replace(' ', '+')}")
        page.wait_for_load_state("networkidle")
        expect(page.locator(ANSWER)).to_be_hidden()
    asked.clear()
    page.goto(f"{server.url}w/allotment/?q={QUESTION.replace(' ', '+')}&mode=keyword")
    page.wait_for_load_state("networkidle")
    expect(page.locator(ANSWER)).to_be_hidden()
    assert asked == []
