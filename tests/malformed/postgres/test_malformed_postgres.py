"""The malformed pages in PostgreSQL: the same pages, problems and search results as in the SQLite store."""

from collections.abc import Iterator

import pytest

from tests.malformed.malformed_wiki import (
    MalformedWiki,
    make_malformed_files,
    open_malformed_wiki,
)
from tests.support.postgres_server import PostgresServer
from wikiholt.domain.search import PageFilter


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
