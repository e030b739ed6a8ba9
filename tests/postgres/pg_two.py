"""Two nodes of one farm over two databases, empty for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pg_server import PostgresServer
from pg_stores import EMBEDDER, open_node_store

from wikiholt.model import IndexChange
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing.entries import make_entry


@pytest.fixture(scope="module")
def addresses(pg: PostgresServer) -> Iterator[tuple[str, str]]:
    made = pg.create_database(), pg.create_database()
    yield made
    for address in made:
        pg.drop_database(address)


@pytest.fixture
def store(addresses: tuple[str, str], tmp_path: Path) -> Iterator[PostgresStore]:
    """A node of a farm over two databases, without wikis."""
    with open_node_store(addresses[0], tmp_path / "node", lease=1.0, linger=0.0) as made:
        made.placements.catalog.add_database("second", addresses[1])
        yield made
        for wiki_id in made.list_wiki_ids():
            made.delete(wiki_id)


@pytest.fixture
def another(addresses: tuple[str, str], tmp_path: Path) -> Iterator[PostgresStore]:
    """Another node of the same farm."""
    with open_node_store(addresses[0], tmp_path / "another", lease=1.0) as made:
        yield made


def make_change(*files: str) -> IndexChange:
    return IndexChange(pages=tuple(make_entry(file, [file], EMBEDDER) for file in files), revision="r2")
