"""What clients of otterwiki-api and otterwiki-semantic-search rely on, where Wikiholt's own API differs."""

from base64 import b64encode
from collections.abc import Iterator

import pytest
from flask import Response

from tests.interfaces.otterwiki.otterwiki_client import PRIVATE_SETTINGS, SHARED_KEY, ApiClient
from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from wikiholt.interfaces.otterwiki.legacy_api import call_for_legacy_clients

pytestmark = pytest.mark.model
NOTICE = (
    "The harbourmaster keeps a list of all moorings and shows it to anybody who asks at the office before noon, except "
    "on days with a regatta, when the office is closed."
)
PAGES = {
    "home.md": "# Home\n\nSee [[Sea]], [[Wanted Page]] and [[sea-side]].\n",
    "sea.md": "# Sea\n\nBoats sail. See [[Home]].\n",
    "john_doe.md": "A sailor.\n",
    **{f"copy/{name}.md": f"# {name}\n\n{NOTICE}\n" for name in ("one", "two", "three")},
    **{f"log/day {day}.md": f"Day {day} with a wave.\n" for day in range(130)},
}


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiClient]:
    environ = {"OTTERWIKI_API_KEY": SHARED_KEY}
    options = PRIVATE_SETTINGS | {"TREAT_UNDERSCORE_AS_SPACE_FOR_TITLES": True, "WIKIHOLT_PAGE_MAX_BYTES": 100_000}
    place = tmp_path_factory.mktemp("legacy")
    with OtterwikiServer.start(place, "dev", options, environ=environ, pages=PAGES) as server:
        server.wait_until_equal()
        yield ApiClient(server, SHARED_KEY)


def test_links_include_pages_that_are_not_written_yet(ask: ApiClient) -> None:
    for path in ("links/home", "pages/home"):
        assert ask.get_json(path)["links_to"] == ["Sea", "Wanted Page", "Sea-Side"]
    assert ask.get_json("links/wanted page")["linked_from"] == ["Home"]
    assert ask.get_json("links/nobody links here")["linked_from"] == []
    graph = ask.get_json("links")
    assert {"Home", "Sea", "Wanted Page"} <= set(graph["nodes"])
    assert {"source": "Home", "target": "Wanted Page"} in graph["edges"]


def test_a_search_for_words_alone_returns_every_page_with_them_or_none(ask: ApiClient) -> None:
    found = ask.get_json("search", q="wave")
    assert (found["total"], len({hit["path"] for hit in found["results"]})) == (130, 130)
    assert ask.get_json("search", q="xqzvnonsenseword")["total"] == 0
    assert len(ask.get_json("search", q="wave", mode="hybrid", n=10)["results"]) == 10, "as in the service"


def test_a_search_returns_every_copy_of_a_page(ask: ApiClient) -> None:
    for options in ({}, {"mode": "hybrid"}):
        found = ask.get_json("search", q="harbourmaster", **options)["results"]
        assert len([hit for hit in found if hit["path"].startswith("Copy/")]) == 3
    (hit,) = ask.get_json("search", q="harbourmaster", mode="keyword", collapse="true")["results"]
    assert {place["path"] for place in (hit, *hit["also_on"])} == {"Copy/One", "Copy/Two", "Copy/Three"}


@pytest.mark.parametrize(("n", "count"), [("99999", 100), ("-5", 1), ("abc", 5)])
def test_numbers_out_of_range_are_capped(ask: ApiClient, n: str, count: int) -> None:
    found = ask.get_json("semantic-search", q="a day with a wave", n=n, max_chunks_per_page=99)
    assert len(found["results"]) == count
    assert ask.get_json("changelog", limit="0")["total"] == 1
    assert ask("GET", "pages/home/history?limit=many").status_code == 200


def test_attachments_are_in_the_changelog_and_too_large_ones_are_invalid(ask: ApiClient) -> None:
    body = {"filename": "map.png", "content": b64encode(b"png").decode(), "commit_message": "Add the map"}
    assert ask("POST", "pages/sea/attachments", body).status_code == 201
    large = ask("POST", "pages/sea/attachments", body | {"content": b64encode(bytes(100_001)).decode()})
    assert large.status_code == 422, large.text
    newest = ask.get_json("changelog", limit=1)["entries"][0]
    assert (newest["message"], newest["pages_affected"]) == ("Add the map", [])
    assert "Add the map" not in str(ask.get_json("changelog", all="false"))


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({}, 409, "Revision required"),
        ({"revision": ""}, 409, "Revision required"),
        ({"revision": "stale_rev"}, 409, "Revision mismatch"),
        ({"revision": "deadbeef00000000"}, 409, "Revision mismatch"),
        ({"revision": "abc"}, 422, "at least 7"),
    ],
)
def test_a_write_without_the_current_revision_is_refused(
    ask: ApiClient, body: dict[str, str], status: int, words: str
) -> None:
    answer = ask("PUT", "pages/sea", {"content": "x", **body})
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("whale", "x", "not found"),
        ("a", "x", "ambiguous"),
        ("", "x", "empty"),
        ("Boats", "Boats", "identical"),
    ],
)
def test_an_edit_that_is_not_possible_says_why_with_a_hint(ask: ApiClient, old: str, new: str, words: str) -> None:
    revision = ask.get_json("pages/sea")["revision"]
    answer = ask("PATCH", "pages/sea", {"revision": revision, "old_string": old, "new_string": new})
    document = answer.json()
    assert (answer.status_code, words in document["error"]) == (422, True), document
    assert document["error"].endswith(document["hint"])


def test_the_status_of_the_old_plugin_is_answered(ask: ApiClient) -> None:
    status = ask.get_json("chroma-status")
    assert (status["status"], status["backend_type"]) == ("ok", "wikiholt")
    assert status["document_count"] >= len(PAGES)
    assert ApiClient(ask.server)("GET", "chroma-status").status_code == 401


def test_underscores_are_spaces_in_titles_if_otterwiki_shows_them_so(ask: ApiClient) -> None:
    hit = ask.get_json("search", q="sailor", mode="keyword")["results"][0]
    assert (hit["name"], hit["path"]) == ("John Doe", "John_Doe")


def test_an_oversized_attachment_is_invalid_but_an_oversized_page_too_large() -> None:
    for path, status in (("pages/sea/attachments", 422), ("pages/sea/attachments/a.png", 422), ("pages/sea", 413)):
        environ = {"REQUEST_METHOD": "PUT", "PATH_INFO": f"/api/v1/{path}"}
        assert call_for_legacy_clients(environ, lambda _: Response("{}", 413)).status_code == status
