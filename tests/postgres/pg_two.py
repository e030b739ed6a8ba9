"""Two nodes of one farm over two databases, empty for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pg_server import PgServer
from pg_stores import EMBEDDER, node

from wikiholt.model import Change
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing.entries import entry


@pytest.fixture(scope="module")
def addresses(pg: PgServer) -> Iterator[tuple[str, str]]:
    made = pg.new_database(), pg.new_database()
    yield made
    for address in made:
        pg.drop_database(address)


@pytest.fixture
def store(addresses: tuple[str, str], tmp_path: Path) -> Iterator[PostgresStore]:
    """A node of a farm over two databases, without wikis."""
    with node(addresses[0], tmp_path / "node", lease=1.0, linger=0.0) as made:
        made.placements.home.add_database("second", addresses[1])
        yield made
        for wiki_id in made.ids():
            made.drop(wiki_id)


@pytest.fixture
def another(addresses: tuple[str, str], tmp_path: Path) -> Iterator[PostgresStore]:
    """Another node of the same farm."""
    with node(addresses[0], tmp_path / "another", lease=1.0) as made:
        yield made


def pages(*files: str) -> Change:
    return Change(pages=tuple(entry(file, [file], EMBEDDER) for file in files), revision="r2")
