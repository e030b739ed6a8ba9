"""Nasty pages through the real model behind a real server, and on the web page in a real browser."""

from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from playwright.sync_api import Browser

from tests.malformed.malformed_pages import MALFORMED_PAGES, ODD_NAMES
from tests.malformed.malformed_wiki import HEALTHY_PAGES, commit_files
from tests.support.browser import OpenTab
from tests.support.git_repository import Repository
from tests.support.web_server import WebServer, run_web_server, wait_until
from wikiholt.git.source import GitSource
from wikiholt.text.page_names import get_page_path

pytestmark = pytest.mark.model

_MAX_PAGE_BYTES = 1_200
"""Bytes of each page: the real model is to see all kinds of them, not all of each."""
_SHOWN_PAGE_COUNT = 20
_PREVIEW = "#app\\.preview"
_FOREIGN_SELECTOR = "main img, iframe, object, embed, base, style, [srcdoc], [onerror], [onload], [onclick]"


@pytest.fixture(scope="module")
def real(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebServer]:
    """A server of a wiki with the beginning of every nasty page, odd names, and the healthy ones."""
    place = tmp_path_factory.mktemp("real")
    files = {f"nasty/{name}.md".encode(): data[:_MAX_PAGE_BYTES] for name, data in MALFORMED_PAGES.items()}
    files |= {name: b"# Odd name %d\n" % number for number, name in enumerate(ODD_NAMES)}
    commit_files(
        Repository(place / "repositories" / "nasty"),
        files | {name.encode(): text.encode() for name, text in HEALTHY_PAGES.items()},
    )
    with run_web_server(place, settings=["limit.address_per_minute=0"]) as (server, _):
        wait_until(lambda: not server.get_status("nasty")["stale"])
        yield server


def get_response(server: WebServer, address: str, **parameters: object) -> httpx.Response:
    return httpx.get(f"{server.url}w/nasty/{address}", params=parameters, timeout=60)  # type: ignore[arg-type]


def test_the_real_model_takes_every_nasty_page_and_finds_the_healthy_ones(real: WebServer) -> None:
    source = GitSource(real.repositories / "nasty")
    status = real.get_status("nasty")
    listed = get_response(real, "api/v1/pages").json()["pages"]
    problems = {problem["file"]: problem["reason"] for problem in status["problems"]}
    assert {page["file"] for page in listed} | set(problems) == set(source.read_tree(source.get_head()))
    assert set(problems.values()) <= {"binary", "lfs-pointer", "symlink", "submodule"}, problems
    assert status["error"] is None
    for mode in ("hybrid", "semantic", "keyword"):
        for file in HEALTHY_PAGES:
            word = get_page_path(file).rpartition("/")[2].lower()
            answer = get_response(
                real, "api/v1/search", q=f"Here lives the {word}canary, in good health", mode=mode
            ).json()
            assert get_page_path(file) in [hit["path"] for hit in answer["results"]], mode
            assert not answer["degraded"]
    for data in list(MALFORMED_PAGES.values())[::4]:
        query = data[: _MAX_PAGE_BYTES // 4].decode("utf-8", "replace")
        if "\0" not in query and query.strip():
            answer = get_response(real, "api/v1/search", q=query, mode="semantic")
            assert (answer.status_code, bool(answer.json()["results"])) == (200, True), query


def test_nasty_pages_are_shown_in_the_browser(real: WebServer, visit: OpenTab) -> None:
    tab = visit(f"{real.url}w/nasty/?q=canary", wait="#app\\.results .card")
    page = tab.page
    listed = [
        found["path"] for found in get_response(real, "api/v1/pages").json()["pages"] if "\n" not in found["path"]
    ]
    for path in listed[:: len(listed) // _SHOWN_PAGE_COUNT]:
        page.goto(f"{real.url}w/nasty/?{urlencode({'page': path})}")
        page.wait_for_selector(f"{_PREVIEW} .near", state="attached")
        assert page.locator(_FOREIGN_SELECTOR).count() == 0, path
        assert page.locator(f"{_PREVIEW} h2").first.is_visible(), path
        assert tab.get_unexpected_errors() == [], (path, tab.get_unexpected_errors())
