"""After a failover to a standby that was behind, two writers can have a lease with the same fence."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer, run_postgres
from tests.support.postgres_stores import WIKI_ID, create_filled_index, make_change, open_node_store
from tests.support.wait import wait_until
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import Busy, DatabaseUnavailable
from wikiholt.index.postgres.store import PostgresStore


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with run_postgres() as started:
        yield started


def try_to_lock(store: PostgresStore, locks: ExitStack) -> bool:
    try:
        locks.enter_context(store.write_lock(WIKI_ID, 0))
    except DatabaseUnavailable:
        return False
    return True


def write(index: WikiIndex, file: str) -> str:
    """What a writer gets for a page, after it has connected again."""

    def try_to_write() -> str:
        try:
            index.apply(make_change(file))
        except DatabaseUnavailable:
            return ""
        except Busy:
            return "refused"
        return "accepted"

    return wait_until(try_to_write, "the promoted server accepts connections")


def test_after_a_failover_only_one_of_two_writers_with_the_same_fence_writes(
    server: PostgresServer, tmp_path: Path
) -> None:
    address = server.create_database()
    with (
        open_node_store(address, tmp_path / "old") as old,
        open_node_store(address, tmp_path / "new") as new,
        ExitStack() as locks,
    ):
        create_filled_index(old, WIKI_ID).close()
        server.make_standby()
        locks.enter_context(old.write_lock(WIKI_ID, 0))
        theirs = old.open(WIKI_ID)
        assert write(theirs, "before.md") == "accepted"
        server.fail_over()
        wait_until(lambda: try_to_lock(new, locks), "the promoted server accepts connections")
        leases = [store.get_write_lease(WIKI_ID) for store in (old, new)]
        assert len({lease.fence for lease in leases if lease}) == 1
        assert [write(theirs, "old.md"), write(new.open(WIKI_ID), "new.md")] == ["refused", "accepted"]
        assert sorted(new.open(WIKI_ID).get_page_blobs()) == ["0.md", "1.md", "2.md", "new.md"]
