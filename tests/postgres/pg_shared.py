"""A store in a database of its own, for tests that need no more of PostgreSQL than that."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pg_server import PgServer

from wikiholt.stores.postgres.home import Home
from wikiholt.stores.postgres.pool import Doors
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.stores.sqlite.store import SqliteStore


@contextmanager
def store_on(pg: PgServer, scratch: Path) -> Iterator[PostgresStore]:
    """One store for many tests: a wiki is made in no time, a database is not."""
    address = pg.new_database()
    home, doors = Home(address), Doors(10)
    yield PostgresStore(home, doors, scratch)
    doors.close()
    home.close()
    pg.drop_database(address)


def emptied(store: PostgresStore) -> PostgresStore:
    for wiki_id in store.ids():
        store.drop(wiki_id)
    return store


@pytest.fixture(scope="module")
def shared(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with store_on(pg, tmp_path_factory.mktemp("scratch")) as store:
        yield store


@pytest.fixture
def postgres(shared: PostgresStore) -> PostgresStore:
    return emptied(shared)


@pytest.fixture
def embedded(tmp_path: Path) -> SqliteStore:
    return SqliteStore(tmp_path / "embedded")
