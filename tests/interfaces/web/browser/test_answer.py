"""The answer above the results of a search."""

import re
import threading
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.interfaces.web.browser.test_appearance import check_accessibility
from tests.support.browser import OpenTab
from tests.support.language_model import ScriptedModel, serve_model
from tests.support.web_server import WebServer, run_web_server

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


def test_a_section_is_named_before_its_sentences(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/allotment/?q=what+may+go+on+the+compost+heap", wait=f"{ANSWER} li", fresh=True)
    lines = tab.page.locator(f"{ANSWER} li").all_inner_texts()
    assert lines[0].startswith("A good heap")
    assert lines[lines.index("Not on the heap") + 1].startswith("Bindweed and couch grass roots")


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


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with serve_model() as served:
        yield served


@pytest.fixture(scope="module")
def writing(browser: Browser, model: ScriptedModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    settings = ["limit.address_per_minute=0", "ask.model=openai:scripted", f"ask.url={model.url}"]
    with run_web_server(tmp_path_factory.mktemp("writing"), settings=settings) as (server, _):
        yield server


def test_a_language_model_answers_when_asked_to_and_its_sentences_are_text(
    writing: WebServer, model: ScriptedModel, visit: OpenTab
) -> None:
    page = visit(f"{writing.url}w/allotment/?q=when+may+I+light+a+bonfire", wait=f"{ANSWER} .written button").page
    assert model.requests == [], "only the button asks the model"
    model.gate = threading.Event()
    model.parts = ["Fires are allowed from 1 November [1]. <img src=x onerror=alert(1)> 7 fires [1]. ", "Stay [99]."]
    page.get_by_role("button", name="Let scripted answer").click()
    written = page.locator(f"{ANSWER} .written")
    first = written.locator("li").first
    expect(first).to_contain_text("Fires are allowed from 1 November.")
    expect(written).to_contain_text("…")
    model.gate.set()
    expect(written.locator("li")).to_have_count(3)
    expect(first.locator("a")).to_have_attribute("href", re.compile(r"^read\?page=Rules%2FBonfires"))
    expect(written.locator("s").first).to_have_text("<img src=x onerror=alert(1)> 7 fires.")
    expect(written.locator("img")).to_have_count(0)
    expect(written.locator("li").last).to_contain_text("Not supported: there is no passage 99.")
    expect(written.locator("p")).to_have_text("1 of 3 sentences supported by the cited passages.")
    check_accessibility(page)


def test_a_language_model_that_fails_says_so_and_the_own_answer_stays(
    writing: WebServer, model: ScriptedModel, visit: OpenTab
) -> None:
    model.status = 500
    page = visit(f"{writing.url}w/allotment/?q=when+may+I+light+a+bonfire", wait=f"{ANSWER} .written button").page
    page.get_by_role("button", name="Let scripted answer").click()
    expect(page.locator(f"{ANSWER} .written p")).to_contain_text("The language model cannot be used")
    expect(page.locator(f"{ANSWER} li a").first).to_be_visible()
