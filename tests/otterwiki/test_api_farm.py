"""The isolation gate inside Otterwiki: two wikis in one process, every route, whatever key, and many at once."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from git_repository import Repository
from otter_api import HERE, NOT_KEPT, SHARED, Asker, registry_key
from otter_ground import BOUND, Otter, wait_until

from wikiholt.model import Scope

pytestmark = pytest.mark.real_model

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
    "reindex/status",
    "backups",
)


def pages(name: str) -> dict[str, str | bytes | None]:
    return {
        "home.md": f"---\ntags: [{name}tag]\ncategory: {name}kind\n---\n"
        f"# Home\n\nThe {name}canary. [[{name}path/Only]]\n",
        f"{name}path/only.md": f"# Only\n\nOnly here, {name}canary once more, and the weather.\n",
        f"home/{name}.txt": f"{name}canary",
    }


class Farm:
    def __init__(self, place: Path) -> None:
        for name in WIKIS:
            Repository(place / "wikis" / name / "repo").commit(pages(name))
        environ = {"FARM_WIKIS": str(place / "wikis"), "FARM_KIND": "proxy", "OTTERWIKI_API_KEY": SHARED, **HERE}
        first: dict[str, str] = {"lobby.md": "# Lobby\n"}
        self.otter = Otter.start(place, "gunicorn", None, None, environ, first, workers=2, app="otter_farm")
        self.keys = {}
        for name in WIKIS:
            self.asker(name)("GET", "pages")
            self.otter.until_found(f"{name}canary", "home", slug=name)
            self.keys[name] = registry_key(self.otter, Scope.ADMIN, name)

    def asker(self, name: str, key: str | None = SHARED) -> Asker:
        host = {"Host": f"{name}.example.org"}
        client = httpx.Client(base_url=self.otter.url, timeout=BOUND, limits=NOT_KEPT, headers=host)
        return Asker(self.otter, key, client)


@pytest.fixture(scope="module")
def farm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    made = Farm(tmp_path_factory.mktemp("api-farm"))
    with made.otter:
        yield made


def other(name: str) -> str:
    return WIKIS[1 - WIKIS.index(name)]


@pytest.mark.parametrize("name", WIKIS)
def test_every_route_shows_the_wiki_of_its_host_and_nothing_of_the_other(farm: Farm, name: str) -> None:
    for key in (SHARED, farm.keys[name], None):
        ask = farm.asker(name, key)
        for route in READS if key else READS[:-1]:
            assert ask("GET", route.format(name)).status_code == 200, (route, farm.otter.log()[-3000:])
            theirs = route.format(other(name))
            answer = ask("GET", theirs)
            said = answer.text.replace(f'"query":"{other(name)}canary"', "")
            if answer.status_code == 200:
                assert other(name) not in said, (theirs, said)
            else:  # an error repeats what was asked for, and no more
                assert answer.status_code == 404
                assert "canary" not in said


@pytest.mark.parametrize("name", WIKIS)
def test_a_key_of_one_wiki_opens_nothing_of_the_other(farm: Farm, name: str) -> None:
    ask = farm.asker(other(name), farm.keys[name])
    for route in READS:
        answer = ask("GET", route.format(other(name)))
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
    home = farm.asker(other(name)).get("pages/Home")
    assert f"{other(name)}canary" in home["content"]
    listed = farm.asker(name, farm.keys[name]).get("keys")["keys"]
    assert {key["wiki"] for key in listed} == {name}


def test_two_wikis_asked_and_written_at_once_never_mix(farm: Farm) -> None:
    def visit(number: int) -> None:
        name = WIKIS[number % 2]
        ask = farm.asker(name)
        made = ask("PUT", f"pages/Page {number}", {"content": f"Number {number} of the {name}, {name}canary.\n"})
        assert made.status_code == 201, made.text
        found = ask.get("search", q=f"{name}canary", n=50)
        assert {hit["path"] for hit in found["results"]} >= {"Home", f"{name.title()}path/Only"}
        assert other(name) not in str(found)
        assert name in ask.get(f"pages/Page {number}")["content"]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(visit, range(24)))
    for name in WIKIS:
        ours = {f"Page {number}" for number in range(24) if WIKIS[number % 2] == name}
        wait_until(lambda name=name, ours=ours: ours <= listed(farm, name))  # type: ignore[misc]
        assert {path for path in listed(farm, name) if path.startswith("Page ")} == ours


def listed(farm: Farm, name: str) -> set[str]:
    return {each["path"] for each in farm.asker(name).get("pages")["pages"]}
