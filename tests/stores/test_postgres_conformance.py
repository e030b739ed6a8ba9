"""The store in PostgreSQL passes what every store must pass."""

from collections.abc import Iterator

import pytest
from pg_server import PgServer

from wikiholt.ports import Store
from wikiholt.stores.postgres.home import Home
from wikiholt.stores.postgres.pool import Doors
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing import StoreConformance, run_state_machine


@pytest.fixture(scope="module")
def shared(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    """One store for all tests of this file: a wiki is made in no time, a database is not."""
    address = pg.new_database()
    home, doors = Home(address), Doors(10)
    yield PostgresStore(home, doors, tmp_path_factory.mktemp("scratch"))
    doors.close()
    home.close()
    pg.drop_database(address)


def emptied(store: PostgresStore) -> Store:
    for wiki_id in store.ids():
        store.drop(wiki_id)
    return store


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, shared: PostgresStore) -> Store:
        return emptied(shared)


def test_the_state_machine_finds_no_difference(shared: PostgresStore) -> None:
    made: list[int] = []

    def fresh() -> Store:
        made.append(1)
        return emptied(shared)

    run_state_machine(fresh, examples=12, steps=20)
    assert made
