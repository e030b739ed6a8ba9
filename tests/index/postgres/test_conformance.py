"""The PostgreSQL store passes the conformance suite."""

from collections.abc import Iterator

import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import open_store, remove_all_wikis
from tests.support.tiers import choose
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.testing import StoreConformance, run_state_machine


@pytest.fixture(scope="module")
def shared(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with open_store(pg, tmp_path_factory.mktemp("scratch")) as store:
        yield store
        remove_all_wikis(store)  # roles belong to the server, which other tests use too


class TestPostgresStore(StoreConformance):
    @pytest.fixture
    def store(self, shared: PostgresStore) -> IndexStore:
        return remove_all_wikis(shared)


def test_the_state_machine_finds_no_difference(shared: PostgresStore) -> None:
    made: list[int] = []

    def fresh() -> IndexStore:
        made.append(1)
        return remove_all_wikis(shared)

    run_state_machine(fresh, examples=choose(12, 4), steps=20)
    assert made
