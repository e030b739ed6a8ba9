"""A store in a database of its own, for tests that need no more of PostgreSQL than that."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pg_server import PostgresServer

from wikiholt.stores.postgres.home import Catalog
from wikiholt.stores.postgres.pool import ConnectionPool
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.stores.sqlite.store import SqliteStore


@contextmanager
def open_store(pg: PostgresServer, scratch: Path) -> Iterator[PostgresStore]:
    """One store for many tests: a wiki is made in no time, a database is not."""
    address = pg.create_database()
    home, doors = Catalog(address), ConnectionPool(10)
    yield PostgresStore(home, doors, scratch)
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
