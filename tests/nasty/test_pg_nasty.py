"""The nasty pages in PostgreSQL: the same pages, the same problems, the same answers as in the embedded store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from nasty_pages import NASTY
from nasty_wiki import HEALTHY, NastyWiki, nasty_files, nasty_wiki, write
from pg_server import PgServer
from test_nasty_wiki import QUERIES

from wikiholt.model import Filter, Mode
from wikiholt.search import Request


def _files() -> dict[bytes, bytes]:
    """Every nasty page but the large ones, every odd name, and the healthy ones."""
    return {name: data for name, data in nasty_files().items() if len(data) < 20_000}


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NastyWiki]:
    with nasty_wiki(tmp_path_factory.mktemp("nastyfiles"), _files()) as found:
        yield found


@pytest.fixture(scope="module")
def stored(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NastyWiki]:
    place, address = tmp_path_factory.mktemp("pgnasty"), pg.new_database()
    (place / "data").mkdir()
    (place / "data" / "wikiholt.toml").write_text(f'store = "{address}"\n')
    with nasty_wiki(place, _files()) as found:
        yield found
    pg.drop_database(address)


def test_pages_and_problems_are_those_of_the_embedded_store(wiki: NastyWiki, stored: NastyWiki) -> None:
    assert type(stored.handle._workshop.store).__name__ == "PostgresStore"
    one, other = wiki.handle.status(), stored.handle.status()
    assert one.problems == other.problems
    assert one.problems
    _, pages = _pages(wiki)
    assert _pages(stored) == (len(pages), pages)
    assert stored.handle.check() == []
    assert {file for file, *_ in pages} | {problem.file for problem in other.problems} == stored.files()


def _pages(wiki: NastyWiki) -> tuple[int, list[tuple[object, ...]]]:
    """Every page as it is listed, whatever number it has."""
    with wiki.handle._index() as index:
        total, pages = index.list_pages(Filter(), None)
    return total, [
        (page.file, page.path, page.name, page.category, page.tags, page.last_updated, page.warnings) for page in pages
    ]


@pytest.mark.parametrize("mode", Mode)
def test_every_question_has_the_same_answer(wiki: NastyWiki, stored: NastyWiki, mode: Mode) -> None:
    texts = [data[len(data) // 3 :][:300].decode("utf-8", "replace").replace("\0", "") for data in NASTY.values()]
    asked = 0
    for query in (*QUERIES, *HEALTHY.values(), *texts[::4]):
        one, other = (_found(each, query, mode) for each in (wiki, stored))
        assert one == other, query
        asked += bool(one)
    assert asked >= 8


def _found(wiki: NastyWiki, query: str, mode: Mode) -> list[tuple[str, float]] | int:
    answer = wiki.client.get("/api/v1/search", params={"q": query, "mode": str(mode), "n": 10})
    if answer.status_code != 200:
        return answer.status_code
    return sorted((hit["path"], round(hit["score"], 3)) for hit in answer.json()["results"])


def test_links_and_facets_are_the_same(wiki: NastyWiki, stored: NastyWiki) -> None:
    for address in ("links", "orphans", "facets", "pages?tag=fit", "pages?prefix=Healthy"):
        one, other = (each.client.get(f"/api/v1/{address}") for each in (wiki, stored))
        assert (one.status_code, one.json()) == (other.status_code, other.json()), address


def test_nasty_pages_may_change_into_one_another_and_go(pg: PgServer, database: str, tmp_path: Path) -> None:
    small = {name: data for name, data in NASTY.items() if len(data) < 10_000}
    names = [f"nasty/{name}.md".encode() for name in small]
    healthy = {name.encode(): text.encode() for name, text in HEALTHY.items()}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wikiholt.toml").write_text(f'store = "{database}"\n')
    contents = list(small.values())
    with nasty_wiki(tmp_path, dict(zip(names, contents, strict=True)) | healthy) as own:
        for files in (dict(zip(names, contents[7:] + contents[:7], strict=True)), {}):
            write(own.repository, files | healthy)
            own.handle.sync()
            assert own.handle.check() == []
            indexed = {page["file"] for page in own.client.get("/api/v1/pages").json()["pages"]}
            assert indexed | {problem.file for problem in own.handle.status().problems} == own.files()
        hits = own.handle.search(Request("kettlecanary", 5, Mode.KEYWORD)).hits
        assert [hit.path for hit in hits] == ["Healthy/Kettle"]
