"""Who writes a wiki, or sits at its desk, holds a lease, and whoever lost it writes nothing more."""

import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from pg_stores import EMBEDDER, ONE, filled
from pg_two import addresses, another, pages, store
from pg_waiting import until

from wikiholt.errors import Busy, IndexMissing
from wikiholt.model import Change, Recipe
from wikiholt.stores.postgres.leases import Lease
from wikiholt.stores.postgres.store import PostgresStore

__all__ = ["addresses", "another", "store"]


def asleep(store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on this node renews none of its leases, as if its machine had been stopped."""
    monkeypatch.setattr(store.leases, "beat", lambda _: None)


def test_a_writer_that_lost_its_lease_writes_nothing_more(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = filled(store, ONE)
    before = index.state()
    asleep(store, monkeypatch)
    with store.writing(ONE, 0):
        with another.writing(ONE, 60):
            theirs = another.open(ONE)
            for write in (
                lambda: index.apply(pages("late.md")),
                lambda: index.apply(Change(revision="r9")),
                lambda: store.new_generation(ONE, Recipe("x", EMBEDDER.dimensions, "x")),
                lambda: store.publish(ONE, 1),
                lambda: store.set_aside(ONE, "no"),
            ):
                with pytest.raises(Busy):
                    write()
            assert theirs.state() == before
            theirs.apply(pages("theirs.md"))
        with pytest.raises(Busy):
            index.apply(pages("late.md"))
    assert sorted(index.pages()) == ["0.md", "1.md", "2.md", "theirs.md"]
    assert index.check() == []
    with store.writing(ONE, 0):
        index.apply(pages("again.md"))


def test_a_writer_that_lost_its_lease_does_not_write_under_that_of_another_of_its_process(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = filled(store, ONE)
    asleep(store, monkeypatch)
    with store.writing(ONE, 0):
        with another.writing(ONE, 60):
            pass
        with pytest.raises(Busy), store.writing(ONE, 0):
            pass
        with pytest.raises(Busy):
            index.apply(pages("late.md"))
    with store.writing(ONE, 0):
        index.apply(pages("next.md"))
    assert "late.md" not in index.pages()


def test_a_lease_is_kept_for_as_long_as_its_holder_lives(store: PostgresStore, another: PostgresStore) -> None:
    filled(store, ONE).close()
    with store.writing(ONE, 0):
        began = time.monotonic()
        with pytest.raises(Busy), another.writing(ONE, 2.5):  # two and a half leases
            pass
        assert time.monotonic() - began >= 2.5
    with another.writing(ONE, 0):
        pass


_HOLDER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from pg_two import addresses, another, pages, store
from pg_stores import EMBEDDER, ONE, node
from wikiholt.model import Change
from wikiholt.testing.entries import entry

with node(sys.argv[2], Path(sys.argv[3]), lease=1.0) as store, store.writing(ONE, 30), store.sitting(ONE) as leave:
    leave("at work")
    index = store.open(ONE)
    door = store.door(ONE)
    with door.writing() as connection:  # in the middle of a transaction
        connection.execute("DELETE FROM g1_pages")
        connection.execute("SELECT fence FROM notes WHERE name = 'writer' FOR UPDATE")
        print("writing", flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM])
def test_a_writer_that_is_killed_is_followed_within_its_lease(
    store: PostgresStore, addresses: tuple[str, str], tmp_path: Path, blow: signal.Signals
) -> None:
    index = filled(store, ONE)
    command = [sys.executable, "-c", _HOLDER, Path(__file__).parent, addresses[0], tmp_path / "holder"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"writing\n"
        assert store.seated(ONE) == "at work"
        assert len(index.pages()) == 3, "reading waits for nobody"
        with pytest.raises(Busy), store.writing(ONE, 0):
            pass
        child.send_signal(blow)
    with store.writing(ONE, 60):
        index.apply(pages("next.md"))
    until(lambda: store.seated(ONE) is None)
    assert len(index.pages()) == 4, "what it had not committed never was"
    assert index.check() == []


def test_a_wiki_removed_while_a_writer_waits_stays_removed(
    store: PostgresStore, another: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store, ONE).close()
    tried, really = Event(), another.leases._take_once

    def once(lease: Lease) -> int | None:
        taken = really(lease)
        tried.set()
        return taken

    monkeypatch.setattr(another.leases, "_take_once", once)

    def wait() -> str:
        try:
            with another.writing(ONE, 60):
                return "wrote"
        except IndexMissing as error:
            return error.message

    with ThreadPoolExecutor(1) as pool:
        with store.writing(ONE, 0):
            waiting = pool.submit(wait)
            assert tried.wait(60)
            store.drop(ONE)
        assert "removed" in waiting.result(60)
    assert store.ids() == []


def test_a_desk_is_taken_by_one_and_its_note_seen_by_all(store: PostgresStore, another: PostgresStore) -> None:
    assert store.seated(ONE) is None
    with store.sitting(ONE) as leave:
        assert another.seated(ONE) == ""
        leave('{"done": 3}')
        assert another.seated(ONE) == '{"done": 3}'
        with pytest.raises(Busy), another.sitting(ONE):
            pass
        store.drop(ONE)
        leave("nobody minds")
    assert another.seated(ONE) is None
    assert store.ids() == []
