"""The store in PostgreSQL passes what every store must pass."""

from collections.abc import Iterator

import pytest
from pg_server import PgServer
from pg_shared import emptied, store_on

from wikiholt.ports import Store
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing import StoreConformance, run_state_machine


@pytest.fixture(scope="module")
def shared(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with store_on(pg, tmp_path_factory.mktemp("scratch")) as store:
        yield store


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
