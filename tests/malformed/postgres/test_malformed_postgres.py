"""The malformed pages in PostgreSQL: the same pages, problems and search results as in the SQLite store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.malformed.malformed_pages import MALFORMED_PAGES
from tests.malformed.malformed_wiki import (
    HEALTHY_PAGES,
    MalformedWiki,
    commit_files,
    make_malformed_files,
    open_malformed_wiki,
)
from tests.malformed.test_malformed_wiki import QUERIES
from tests.support.postgres_server import PostgresServer
from wikiholt.domain.search import PageFilter, SearchMode
from wikiholt.search.request import SearchRequest


def _make_files() -> dict[bytes, bytes]:
    """All malformed pages except the large ones, all odd names, and the healthy pages."""
    return {name: data for name, data in make_malformed_files().items() if len(data) < 20_000}


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MalformedWiki]:
    with open_malformed_wiki(tmp_path_factory.mktemp("nastyfiles"), _make_files()) as found:
        yield found


@pytest.fixture(scope="module")
def postgres_wiki(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MalformedWiki]:
    directory, address = tmp_path_factory.mktemp("pgnasty"), pg.create_database()
    (directory / "data").mkdir()
    (directory / "data" / "wikiholt.toml").write_text(f'store = "{address}"\n')
    with open_malformed_wiki(directory, _make_files()) as found:
        yield found
    pg.drop_database(address)


def test_pages_and_problems_equal_those_of_the_sqlite_store(wiki: MalformedWiki, postgres_wiki: MalformedWiki) -> None:
    assert type(postgres_wiki.handle._components.store).__name__ == "PostgresStore"
    one, other = wiki.handle.get_status(), postgres_wiki.handle.get_status()
    assert one.problems == other.problems
    assert one.problems
    _, pages = _read_pages(wiki)
    assert _read_pages(postgres_wiki) == (len(pages), pages)
    assert postgres_wiki.handle.check() == []
    assert {file for file, *_ in pages} | {problem.file for problem in other.problems} == postgres_wiki.list_files()


def _read_pages(wiki: MalformedWiki) -> tuple[int, list[tuple[object, ...]]]:
    """All listed pages, without their ids."""
    with wiki.handle._open_index() as index:
        total, pages = index.list_pages(PageFilter(), None)
    return total, [
        (page.file, page.path, page.name, page.category, page.tags, page.last_updated, page.warnings) for page in pages
    ]


@pytest.mark.parametrize("mode", SearchMode)
def test_every_query_has_the_same_results(wiki: MalformedWiki, postgres_wiki: MalformedWiki, mode: SearchMode) -> None:
    texts = [
        data[len(data) // 3 :][:300].decode("utf-8", "replace").replace("\0", "") for data in MALFORMED_PAGES.values()
    ]
    answered = 0
    for query in (*QUERIES, *HEALTHY_PAGES.values(), *texts[::4]):
        one, other = (_search_paths(each_wiki, query, mode) for each_wiki in (wiki, postgres_wiki))
        assert one == other, query
        answered += bool(one)
    assert answered >= 8


def _search_paths(wiki: MalformedWiki, query: str, mode: SearchMode) -> list[tuple[str, float]] | int:
    answer = wiki.client.get("/api/v1/search", params={"q": query, "mode": str(mode), "n": 10})
    if answer.status_code != 200:
        return answer.status_code
    return sorted((hit["path"], round(hit["score"], 3)) for hit in answer.json()["results"])


def test_links_and_facets_are_the_same(wiki: MalformedWiki, postgres_wiki: MalformedWiki) -> None:
    for address in ("links", "orphans", "facets", "pages?tag=fit", "pages?prefix=Healthy"):
        one, other = (each_wiki.client.get(f"/api/v1/{address}") for each_wiki in (wiki, postgres_wiki))
        assert (one.status_code, one.json()) == (other.status_code, other.json()), address


def test_malformed_pages_can_be_changed_and_deleted(pg: PostgresServer, database: str, tmp_path: Path) -> None:
    small = {name: data for name, data in MALFORMED_PAGES.items() if len(data) < 10_000}
    names = [f"nasty/{name}.md".encode() for name in small]
    healthy = {name.encode(): text.encode() for name, text in HEALTHY_PAGES.items()}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "wikiholt.toml").write_text(f'store = "{database}"\n')
    contents = list(small.values())
    with open_malformed_wiki(tmp_path, dict(zip(names, contents, strict=True)) | healthy) as malformed:
        for files in (dict(zip(names, contents[7:] + contents[:7], strict=True)), {}):
            commit_files(malformed.repository, files | healthy)
            malformed.handle.sync()
            assert malformed.handle.check() == []
            indexed = {page["file"] for page in malformed.client.get("/api/v1/pages").json()["pages"]}
            assert (
                indexed | {problem.file for problem in malformed.handle.get_status().problems} == malformed.list_files()
            )
        hits = malformed.handle.search(SearchRequest("kettlecanary", 5, SearchMode.KEYWORD)).hits
        assert [hit.path for hit in hits] == ["Healthy/Kettle"]
