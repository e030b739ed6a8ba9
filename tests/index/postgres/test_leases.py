"""Writers and holders of the activity lock have a lease. A process that lost its lease writes nothing more."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from tests.support.fork_server import ForkedPopen
from tests.support.paths import ROOT
from tests.support.postgres_stores import (
    EMBEDDER,
    LEASE_S,
    WIKI_ID,
    addresses,
    another,
    create_filled_index,
    expire_leases,
    make_change,
    read_lease_expiry,
    store,
)
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.index import IndexChange, Recipe
from wikiholt.errors import Busy, IndexMissing, LockTimeout
from wikiholt.index.postgres import leases
from wikiholt.index.postgres.leases import Lease
from wikiholt.index.postgres.store import PostgresStore

__all__ = ["addresses", "another", "store"]


def stop_renewing(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stop renewing the leases of this node, as if its machine were suspended."""
    monkeypatch.setattr(store.leases, "renew", lambda _: None)


def test_a_writer_that_lost_its_lease_writes_nothing_more(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = create_filled_index(store, WIKI_ID)
    before = index.get_state()
    stop_renewing(store, monkeypatch)
    with store.write_lock(WIKI_ID, 0):
        expire_leases(store, WIKI_ID)
        with another.write_lock(WIKI_ID, 0):
            theirs = another.open(WIKI_ID)
            for write in (
                lambda: index.apply(make_change("late.md")),
                lambda: index.apply(IndexChange(revision="r9")),
                lambda: store.create_generation(WIKI_ID, Recipe("x", EMBEDDER.dimensions, "x")),
                lambda: store.publish(WIKI_ID, 1),
                lambda: store.quarantine(WIKI_ID, "no"),
            ):
                with pytest.raises(Busy):
                    write()
            assert theirs.get_state() == before
            theirs.apply(make_change("theirs.md"))
        with pytest.raises(Busy):
            index.apply(make_change("late.md"))
    assert sorted(index.get_page_blobs()) == ["0.md", "1.md", "2.md", "theirs.md"]
    assert index.check() == []
    with store.write_lock(WIKI_ID, 0):
        index.apply(make_change("again.md"))


def test_a_lease_from_before_the_clock_was_set_back_does_not_last(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = create_filled_index(store, WIKI_ID)
    stop_renewing(store, monkeypatch)
    with store.write_lock(WIKI_ID, 0):
        expire_leases(store, WIKI_ID, "+ interval '1 year'")
        with another.write_lock(WIKI_ID, 0):
            another.open(WIKI_ID).apply(make_change("theirs.md"))
        with pytest.raises(Busy):
            index.apply(make_change("late.md"))


def test_a_writer_that_lost_its_lease_cannot_use_another_lease_of_its_process(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = create_filled_index(store, WIKI_ID)
    stop_renewing(store, monkeypatch)
    with store.write_lock(WIKI_ID, 0):
        expire_leases(store, WIKI_ID)
        with another.write_lock(WIKI_ID, 0):
            pass
        with pytest.raises(Busy), store.write_lock(WIKI_ID, 0):
            pass
        with pytest.raises(Busy):
            index.apply(make_change("late.md"))
    with store.write_lock(WIKI_ID, 0):
        index.apply(make_change("next.md"))
    assert "late.md" not in index.get_page_blobs()


def test_a_lease_is_renewed_for_as_long_as_its_holder_lives(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_filled_index(store, WIKI_ID).close()
    execute = store.leases._execute

    def execute_for_long(statement: str, lease: Lease, **parameters: object) -> int:
        return execute(statement, lease, **parameters | ({"seconds": LEASE_S} if "seconds" in parameters else {}))

    # The thread renews the lease often, and each renewal lasts longer than the test.
    monkeypatch.setattr(store.leases, "_execute", execute_for_long)
    monkeypatch.setattr(leases, "RENEW_LOCK_TIMEOUT_S", TIMEOUT_S)  # the release waits for a renewal that is slow
    monkeypatch.setattr(store.leases, "duration_s", 0.3)
    with store.write_lock(WIKI_ID, 0):
        for _ in range(3):
            until_s = read_lease_expiry(store, WIKI_ID)
            wait_until(lambda until_s=until_s: read_lease_expiry(store, WIKI_ID) > until_s)
        with pytest.raises(Busy), another.write_lock(WIKI_ID, 0.1):
            pass
    with another.write_lock(WIKI_ID, 0):
        pass


def test_a_lease_whose_row_is_being_renewed_is_released(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_filled_index(store, WIKI_ID).close()
    execute, locked = store.leases._execute, [LockTimeout("locked by the renewal")]

    def execute_when_unlocked(statement: str, lease: Lease, **parameters: object) -> int:
        if "holder = NULL" in statement and locked:
            raise locked.pop()
        return execute(statement, lease, **parameters)

    monkeypatch.setattr(store.leases, "_execute", execute_when_unlocked)
    with store.write_lock(WIKI_ID, 0):
        pass
    assert not locked
    with another.write_lock(WIKI_ID, 0):
        pass


_HOLDER_SCRIPT = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.postgres_stores import WIKI_ID, open_node_store

with (
    open_node_store(sys.argv[2], Path(sys.argv[3])) as store,
    store.write_lock(WIKI_ID, 30),
    store.activity_lock(WIKI_ID) as leave,
):
    leave("at work")
    index = store.open(WIKI_ID)
    with store.get_connections(WIKI_ID).write_transaction() as connection:  # in the middle of a transaction
        connection.execute("DELETE FROM g1_pages")
        connection.execute("SELECT fence FROM state WHERE name = 'writer' FOR UPDATE")
        print("writing", flush=True)
        time.sleep(600)
"""


def can_expire_leases(store: PostgresStore) -> bool:
    """End the leases. False while the server has not ended the session of the killed writer, which locks them."""
    try:
        expire_leases(store, WIKI_ID)
    except LockTimeout:
        return False
    return True


@pytest.mark.parametrize("kill_signal", [signal.SIGKILL, signal.SIGTERM])
def test_after_a_writer_is_killed_another_can_write_when_the_lease_has_ended(
    store: PostgresStore, addresses: tuple[str, str], tmp_path: Path, kill_signal: signal.Signals
) -> None:
    index = create_filled_index(store, WIKI_ID)
    command = [sys.executable, "-c", _HOLDER_SCRIPT, ROOT, addresses[0], tmp_path / "holder"]
    with ForkedPopen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"writing\n"
        assert store.get_activity(WIKI_ID) == "at work"
        assert len(index.get_page_blobs()) == 3, "readers do not wait"
        with pytest.raises(Busy), store.write_lock(WIKI_ID, 0):
            pass
        child.send_signal(kill_signal)
    wait_until(lambda: can_expire_leases(store))
    with store.write_lock(WIKI_ID, 60):
        index.apply(make_change("next.md"))
    wait_until(lambda: store.get_activity(WIKI_ID) is None)
    assert len(index.get_page_blobs()) == 4, "uncommitted work is lost"
    assert index.check() == []


def test_a_wiki_removed_while_a_writer_waits_stays_removed(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_filled_index(store, WIKI_ID).close()
    tried, really = Event(), another.leases._try_acquire

    def once(lease: Lease) -> int | None:
        taken = really(lease)
        tried.set()
        return taken

    monkeypatch.setattr(another.leases, "_try_acquire", once)

    def wait() -> str:
        try:
            with another.write_lock(WIKI_ID, 60):
                return "wrote"
        except IndexMissing as error:
            return error.message

    with ThreadPoolExecutor(1) as pool:
        with store.write_lock(WIKI_ID, 0):
            waiting = pool.submit(wait)
            assert tried.wait(60)
            store.delete(WIKI_ID)
        assert "removed" in waiting.result(60)
    assert store.list_wiki_ids() == []


def test_one_node_holds_the_activity_lock_and_all_see_its_note(store: PostgresStore, another: PostgresStore) -> None:
    assert store.get_activity(WIKI_ID) is None
    with store.activity_lock(WIKI_ID) as leave:
        assert another.get_activity(WIKI_ID) == ""
        leave('{"done": 3}')
        assert another.get_activity(WIKI_ID) == '{"done": 3}'
        with pytest.raises(Busy), another.activity_lock(WIKI_ID):
            pass
        store.delete(WIKI_ID)
        leave("nobody minds")
    assert another.get_activity(WIKI_ID) is None
    assert store.list_wiki_ids() == []
