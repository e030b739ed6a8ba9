"""Isolation inside Otterwiki: two wikis in one process, every route, every kind of key, concurrent requests."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.interfaces.otterwiki.otterwiki_client import (
    HELPER_PATH,
    NO_KEEPALIVE,
    SHARED_KEY,
    ApiClient,
    create_registry_key,
)
from tests.interfaces.otterwiki.otterwiki_server import OtterwikiServer
from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.wiki import Scope

pytestmark = pytest.mark.model

WIKIS = ("garden", "kitchen")
READS = (
    "pages",
    "pages?tag={0}tag",
    "pages?category={0}kind",
    "pages?prefix={0}path",
    "pages/Home",
    "pages/Home/history",
    "pages/{0}path/Only",
    "pages/Home/attachments",
    "pages/Home/attachments/{0}.txt",
    "search?q={0}canary",
    "search?q={0}canary&mode=hybrid&n=50",
    "search?q={0}canary&mode=keyword&n=50",
    "semantic-search?q={0}canary&n=50&max_chunks_per_page=10",
    "similar?path=Home",
    "facets",
    "links",
    "links/Home",
    "orphans",
    "changelog",
    "status",
    "chroma-status",
    "reindex/status",
    "backups",
)


def make_pages(name: str) -> dict[str, str | bytes | None]:
    return {
        "home.md": f"---\ntags: [{name}tag]\ncategory: {name}kind\n---\n"
        f"# Home\n\nThe {name}canary. [[{name}path/Only]]\n",
        f"{name}path/only.md": f"# Only\n\nOnly here, {name}canary once more, and the weather.\n",
        f"home/{name}.txt": f"{name}canary",
    }


class TwoWikis:
    def __init__(self, place: Path) -> None:
        for name in WIKIS:
            Repository(place / "wikis" / name / "repo").commit(make_pages(name))
        environ = {
            "WIKIS_DIRECTORY": str(place / "wikis"),
            "STORAGE_KIND": "proxy",
            "OTTERWIKI_API_KEY": SHARED_KEY,
            **HELPER_PATH,
        }
        first: dict[str, str] = {"lobby.md": "# Lobby\n"}
        self.otter = OtterwikiServer.start(
            place, "gunicorn", None, None, environ, first, workers=2, app="tests.interfaces.otterwiki.multi_wiki_app"
        )
        self.keys = {}
        for name in WIKIS:
            self.make_client(name)("GET", "pages")
            self.otter.wait_until_found(f"{name}canary", "home", slug=name)
            self.keys[name] = create_registry_key(self.otter, Scope.ADMIN, name)

    def make_client(self, name: str, key: str | None = SHARED_KEY) -> ApiClient:
        host = {"Host": f"{name}.example.org"}
        client = httpx.Client(base_url=self.otter.url, timeout=TIMEOUT_S, limits=NO_KEEPALIVE, headers=host)
        return ApiClient(self.otter, key, client)


@pytest.fixture(scope="module")
def wikis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoWikis]:
    wikis = TwoWikis(tmp_path_factory.mktemp("two-wikis"))
    with wikis.otter:
        yield wikis


def get_other(name: str) -> str:
    return WIKIS[1 - WIKIS.index(name)]


@pytest.mark.parametrize("name", WIKIS)
def test_every_route_shows_the_wiki_of_its_host_and_nothing_of_the_other(wikis: TwoWikis, name: str) -> None:
    for key in (SHARED_KEY, wikis.keys[name], None):
        ask = wikis.make_client(name, key)
        for route in READS if key else READS[:-1]:
            assert ask("GET", route.format(name)).status_code == 200, (route, wikis.otter.read_log()[-3000:])
            theirs = route.format(get_other(name))
            answer = ask("GET", theirs)
            text = answer.text.replace(f'"query":"{get_other(name)}canary"', "")
            if answer.status_code == 200:
                assert get_other(name) not in text, (theirs, text)
            else:  # an error repeats only the request
                assert answer.status_code == 404
                assert "canary" not in text


@pytest.mark.parametrize("name", WIKIS)
def test_a_key_of_one_wiki_opens_nothing_of_the_other(wikis: TwoWikis, name: str) -> None:
    ask = wikis.make_client(get_other(name), wikis.keys[name])
    for route in READS:
        answer = ask("GET", route.format(get_other(name)))
        assert (answer.status_code, "canary" in answer.text) == (403, False), route
    for method, path, body in (
        ("PUT", "pages/Intruder", {"content": "x"}),
        ("DELETE", "pages/Home", None),
        ("POST", "pages/Home/attachments", {"filename": "a.txt", "content": ""}),
        ("POST", "reindex", None),
        ("GET", "keys", None),
        ("POST", "keys", {"label": "intruder"}),
    ):
        assert ask(method, path, body).status_code == 403
    home = wikis.make_client(get_other(name)).get_json("pages/Home")
    assert f"{get_other(name)}canary" in home["content"]
    listed = wikis.make_client(name, wikis.keys[name]).get_json("keys")["keys"]
    assert {key["wiki"] for key in listed} == {name}


def test_concurrent_reads_and_writes_of_two_wikis_never_mix(wikis: TwoWikis) -> None:
    def visit(number: int) -> None:
        name = WIKIS[number % 2]
        ask = wikis.make_client(name)
        response = ask("PUT", f"pages/Page {number}", {"content": f"Number {number} of the {name}, {name}canary.\n"})
        assert response.status_code == 201, response.text
        document = ask.get_json("search", q=f"{name}canary", n=50)
        assert {hit["path"] for hit in document["results"]} >= {"Home", f"{name.title()}path/Only"}
        assert get_other(name) not in str(document)
        assert name in ask.get_json(f"pages/Page {number}")["content"]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(visit, range(24)))
    for name in WIKIS:
        expected = {f"Page {number}" for number in range(24) if WIKIS[number % 2] == name}
        wait_until(lambda name=name, expected=expected: expected <= list_paths(wikis, name))  # type: ignore[misc]
        assert {path for path in list_paths(wikis, name) if path.startswith("Page ")} == expected


def list_paths(wikis: TwoWikis, name: str) -> set[str]:
    return {page["path"] for page in wikis.make_client(name).get_json("pages")["pages"]}
