"""A store in PostgreSQL as a node has it, and wikis in it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import pytest
from psycopg import sql

from tests.support.postgres_server import PostgresServer
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.index import IndexChange, Recipe
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.leases import WRITE_LEASE
from wikiholt.index.postgres.pool import ConnectionPool
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.testing.fakes import make_entry

WIKI_ID, OTHER_WIKI_ID = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"
EMBEDDER = FakeEmbedder()
RECIPE = Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "test")
LEASE_S = 600.0
"""Longer than any test: a lease ends when a test says so, not when the machine is busy."""


@contextmanager
def open_node_store(
    database: str,
    place: Path,
    *,
    lease: float = LEASE_S,
    connections: int = 10,
    linger: float = 60.0,
    lock_timeout_s: float | None = TIMEOUT_S,
) -> Iterator[PostgresStore]:
    """What one process has open of a farm. Without `lock_timeout_s` it waits for locks as a node does."""
    home, doors = (
        Catalog(database, lock_timeout_s=lock_timeout_s),
        ConnectionPool(connections, wait_timeout_s=TIMEOUT_S, lock_timeout_s=lock_timeout_s),
    )
    try:
        yield PostgresStore(home, doors, place, lease, linger_s=linger)
    finally:
        doors.close()
        home.close()


def create_filled_index(store: PostgresStore, wiki_id: str, pages: int = 3, revision: str = "r1") -> WikiIndex:
    """A published index with a number of pages that all contain `needle`."""
    index = store.create(wiki_id, RECIPE)
    some = tuple(make_entry(f"{number}.md", [f"needle {number}"], EMBEDDER) for number in range(pages))
    index.apply(IndexChange(pages=some, revision=revision))
    return index


# A store in a database of its own, for tests that need no more of PostgreSQL than that.


@contextmanager
def open_store(pg: PostgresServer, scratch: Path) -> Iterator[PostgresStore]:
    """One store for many tests: a wiki is made in no time, a database is not."""
    address = pg.create_database()
    home = Catalog(address, lock_timeout_s=TIMEOUT_S)
    doors = ConnectionPool(10, wait_timeout_s=TIMEOUT_S, lock_timeout_s=TIMEOUT_S)
    yield PostgresStore(home, doors, scratch, LEASE_S)
    doors.close()
    home.close()
    pg.drop_database(address)


def remove_all_wikis(store: PostgresStore) -> PostgresStore:
    for wiki_id in store.list_wiki_ids():
        store.delete(wiki_id)
    return store


@pytest.fixture(scope="module")
def shared(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with open_store(pg, tmp_path_factory.mktemp("scratch")) as store:
        yield store


@pytest.fixture
def postgres(shared: PostgresStore) -> PostgresStore:
    return remove_all_wikis(shared)


@pytest.fixture
def embedded(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "embedded")


# Two nodes of one farm over two databases, empty for each test.


@pytest.fixture(scope="module")
def addresses(pg: PostgresServer) -> Iterator[tuple[str, str]]:
    made = pg.create_database(), pg.create_database()
    yield made
    for address in made:
        pg.drop_database(address)


@pytest.fixture
def store(addresses: tuple[str, str], tmp_path: Path) -> Iterator[PostgresStore]:
    """A node of a farm over two databases, without wikis."""
    with open_node_store(addresses[0], tmp_path / "node", linger=0.0) as made:
        made.placements.catalog.add_database("second", addresses[1])
        yield made
        for wiki_id in made.list_wiki_ids():
            made.delete(wiki_id)


@pytest.fixture
def another(addresses: tuple[str, str], tmp_path: Path) -> Iterator[PostgresStore]:
    """Another node of the same farm."""
    with open_node_store(addresses[0], tmp_path / "another") as made:
        yield made


def read_lease_expiry(store: PostgresStore, wiki_id: str, name: str = WRITE_LEASE) -> float:
    """The time at which a lease of the wiki ends, by the server's clock."""
    placement = store.placements.get(wiki_id)
    statement = sql.SQL("SELECT extract(epoch FROM until)::float8 FROM {} WHERE name = %s").format(
        sql.Identifier(placement.schema, "state")
    )
    with store.placements.get_operator_connections(placement).read_connection() as connection:
        ((until_s,),) = connection.execute(statement, (name,)).fetchall()
    return float(until_s)


def expire_leases(store: PostgresStore, wiki_id: str, offset: LiteralString = "- interval '1 second'") -> None:
    """Change the end of the leases of the wiki, as if their holders had not renewed them in time."""
    placement = store.placements.get(wiki_id)
    statement = sql.SQL("UPDATE {} SET until = clock_timestamp() " + offset + " WHERE holder IS NOT NULL")
    with store.placements.get_operator_connections(placement).write_transaction() as connection:
        connection.execute(statement.format(sql.Identifier(placement.schema, "state")))


def make_change(*files: str) -> IndexChange:
    return IndexChange(pages=tuple(make_entry(file, [file], EMBEDDER) for file in files), revision="r2")
