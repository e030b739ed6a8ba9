"""Malformed pages with the real model and a real server, and in a real browser."""

from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.malformed.malformed_pages import MALFORMED_PAGES, ODD_NAMES
from tests.malformed.malformed_wiki import HEALTHY_PAGES, commit_files
from tests.support.browser import OpenTab
from tests.support.git_repository import Repository
from tests.support.tiers import choose
from tests.support.wait import wait_until
from tests.support.web_server import WebServer, run_web_server
from wikiholt.git.source import GitSource
from wikiholt.search.query import has_word_or_symbol
from wikiholt.text.page_names import get_page_path

pytestmark = pytest.mark.model

_MAX_PAGE_BYTES = choose(1_200, 400)
"""Bytes of each page: the real model gets all kinds of pages, but not all of their content."""
_SHOWN_PAGE_COUNT = choose(20, 8)
_PREVIEW = "#app\\.preview"
_FOREIGN_SELECTOR = "main img, iframe, object, embed, base, style, [srcdoc], [onerror], [onload], [onclick]"


@pytest.fixture(scope="module")
def server(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A server of a wiki with the beginning of every malformed page, odd names, and healthy pages."""
    directory = tmp_path_factory.mktemp("real")
    files = {f"nasty/{name}.md".encode(): data[:_MAX_PAGE_BYTES] for name, data in MALFORMED_PAGES.items()}
    files |= {name: b"# Odd name %d\n" % number for number, name in enumerate(ODD_NAMES)}
    commit_files(
        Repository(directory / "repositories" / "nasty"),
        files | {name.encode(): text.encode() for name, text in HEALTHY_PAGES.items()},
    )
    with run_web_server(directory, settings=["limit.address_per_minute=0"]) as (running, _):
        wait_until(lambda: running.get_status("nasty")["meaning_ready"] == 1)
        yield running


def get_response(server: WebServer, address: str, **parameters: object) -> httpx.Response:
    return httpx.get(f"{server.url}w/nasty/{address}", params=parameters, timeout=60)  # type: ignore[arg-type]


def test_the_real_model_accepts_every_malformed_page_and_finds_the_healthy_ones(server: WebServer) -> None:
    source = GitSource(server.repositories / "nasty")
    status = server.get_status("nasty")
    listed = get_response(server, "api/v1/pages").json()["pages"]
    problems = {problem["file"]: problem["reason"] for problem in status["problems"]}
    assert {page["file"] for page in listed} | set(problems) == set(source.read_tree(source.get_head()))
    assert set(problems.values()) <= {"binary", "lfs-pointer", "symlink", "submodule"}, problems
    assert status["error"] is None
    for mode in ("hybrid", "semantic", "keyword"):
        for file in HEALTHY_PAGES:
            word = get_page_path(file).rpartition("/")[2].lower()
            answer = get_response(
                server, "api/v1/search", q=f"Here lives the {word}canary, in good health", mode=mode
            ).json()
            assert get_page_path(file) in [hit["path"] for hit in answer["results"]], mode
            assert not answer["degraded"]
    for data in list(MALFORMED_PAGES.values())[:: choose(4, 8)]:
        query = data[: _MAX_PAGE_BYTES // 4].decode("utf-8", "replace")
        if "\0" not in query and has_word_or_symbol(query):
            answer = get_response(server, "api/v1/search", q=query, mode="semantic")
            assert (answer.status_code, bool(answer.json()["results"])) == (200, True), query


def test_malformed_pages_are_shown_in_the_browser(server: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{server.url}w/nasty/?q=canary", wait="#app\\.results .card")
    page = tab.page
    listed = [
        found["path"] for found in get_response(server, "api/v1/pages").json()["pages"] if "\n" not in found["path"]
    ]
    for path in listed[:: len(listed) // _SHOWN_PAGE_COUNT]:
        page.goto(f"{server.url}w/nasty/?{urlencode({'page': path})}")
        page.wait_for_selector(f"{_PREVIEW} .related", state="attached")
        assert page.locator(_FOREIGN_SELECTOR).count() == 0, path
        expect(page.locator(f"{_PREVIEW} h2").first).to_be_visible()
        assert tab.get_unexpected_errors() == [], (path, tab.get_unexpected_errors())
