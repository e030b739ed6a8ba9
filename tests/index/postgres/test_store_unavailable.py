"""An unavailable database affects only its own wikis, and only until it is back. No restart is needed."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from tests.support.postgres_server import PostgresServer, run_postgres
from tests.support.postgres_stores import EMBEDDER, OTHER_WIKI_ID, WIKI_ID, create_filled_index, open_node_store
from tests.support.wait import wait_until
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.errors import DatabaseUnavailable
from wikiholt.index.postgres import placements, pool
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.testing.fakes import make_entry

NEEDLE_QUERY = KeywordQuery(terms=("needle",))


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[PostgresServer]:
    """A second server, which is stopped and started here."""
    with run_postgres() as server:
        yield server


@pytest.fixture
def store(database: str, elsewhere: PostgresServer, tmp_path: Path) -> Iterator[PostgresStore]:
    """Two wikis on two servers; the home database is on the first."""
    second = elsewhere.create_database()
    with open_node_store(database, tmp_path / "node") as made:
        made.placements.catalog.add_database("second", second)
        for wiki_id, place in ((WIKI_ID, "home"), (OTHER_WIKI_ID, "second")):
            made.placements.provision(wiki_id, place)
            create_filled_index(made, wiki_id).close()
        yield made
        for wiki_id in (WIKI_ID, OTHER_WIKI_ID):
            made.delete(wiki_id)
    elsewhere.drop_database(second)


def can_answer(search: Callable[[], object]) -> bool:
    try:
        search()
    except DatabaseUnavailable:
        return False
    return True


def test_an_unavailable_database_does_not_affect_wikis_on_others(
    store: PostgresStore, elsewhere: PostgresServer
) -> None:
    one, other = store.open(WIKI_ID), store.open(OTHER_WIKI_ID)
    elsewhere.stop()
    try:
        for ask in (
            other.get_state,
            lambda: other.list_pages(PageFilter(), 5),
            lambda: other.apply(IndexChange(revision="r2")),
            lambda: store.open(OTHER_WIKI_ID),
            lambda: store.get_published(OTHER_WIKI_ID),
            lambda: store.quarantine(OTHER_WIKI_ID, "no"),
            lambda: store.delete(OTHER_WIKI_ID),
            lambda: store.write_lock(OTHER_WIKI_ID, 0).__enter__(),
        ):
            with pytest.raises(DatabaseUnavailable) as caught:
                ask()
            assert caught.value.retry_after > 0
            assert caught.value.hint
            assert not any(word in caught.value.message for word in ("host", "/", "w_", "port"))
        assert store.get_note(OTHER_WIKI_ID, "health") is None
        assert store.get_activity(OTHER_WIKI_ID) is None
        assert one.list_pages(PageFilter(), 5)[0] == 3
        with store.write_lock(WIKI_ID, 0):
            one.apply(IndexChange(pages=(make_entry("new.md", ["needle"], EMBEDDER),), revision="r2"))
    finally:
        elsewhere.start()
    wait_until(lambda: can_answer(other.get_state))
    assert other.list_pages(PageFilter(), 5)[0] == 3
    assert other.check() == []
    assert store.list_quarantined(OTHER_WIKI_ID) == []
    assert store.delete(OTHER_WIKI_ID), "the next attempt removes it"
    assert store.list_wiki_ids() == [WIKI_ID]


def test_broken_idle_connections_are_replaced(store: PostgresStore, elsewhere: PostgresServer) -> None:
    other = store.open(OTHER_WIKI_ID)
    for how in (signal.SIGINT, signal.SIGQUIT):
        with other._connections.read_snapshot(), other._connections.read_snapshot(), other._connections.read_snapshot():
            pass  # three connections are in the pool
        elsewhere.stop(how)
        elsewhere.start()
        assert other.get_version() >= 1
        assert other.list_pages(PageFilter(), 5)[0] == 3
        with store.write_lock(OTHER_WIKI_ID, 0):
            other.apply(IndexChange(revision=f"r{how}"))
        assert other.get_state().revision == f"r{how}"
        with store.placements.catalog.get_database("second").connections.read_connection() as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_readers_during_a_crash_get_only_the_unavailable_error(store: PostgresStore, elsewhere: PostgresServer) -> None:
    other = store.open(OTHER_WIKI_ID)
    done, heard = Event(), []

    def read() -> None:
        while not done.is_set():
            try:
                heard.append(other.list_pages(PageFilter(), 5)[0])
            except Exception as error:  # noqa: BLE001
                heard.append(type(error))

    threads = [Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: 3 in heard)
        elsewhere.stop(signal.SIGQUIT)
        wait_until(lambda: DatabaseUnavailable in heard)
        elsewhere.start()
        count = len(heard)
        wait_until(lambda: 3 in heard[count:])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert set(heard) == {3, DatabaseUnavailable}


def test_wikis_on_other_servers_answer_while_the_home_database_is_unavailable(
    store: PostgresStore, pg: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placements, "_PLACEMENT_TTL_S", 0.0)
    one, other = store.open(WIKI_ID), store.open(OTHER_WIKI_ID)
    pg.stop()
    try:
        assert store.get_published(OTHER_WIKI_ID) == 1
        assert other.list_pages(PageFilter(), 5)[0] == 3
        with pytest.raises(DatabaseUnavailable):
            one.get_state()
        with pytest.raises(DatabaseUnavailable):
            store.get_published("cccccccccccccccccccc")
    finally:
        pg.start()
    wait_until(lambda: can_answer(one.get_state))
    assert one.list_pages(PageFilter(), 5)[0] == 3


def count_connections(listener: socket.socket) -> int:
    """The number of connections since the last call."""
    listener.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count


def test_a_silent_host_times_out_soon_and_later_fails_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_RETRY_DELAY_S", 600.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        home = Catalog(f"postgresql://u:secret@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2")
        tries = list[int]()
        try:
            for _ in range(2):
                with pytest.raises(DatabaseUnavailable) as caught, home.read_connection():
                    pass
                assert "127" not in caught.value.message
                assert "secret" not in str(caught.value.__cause__)
                tries.append(count_connections(silent))
            assert tries[0] > 0
            assert tries[1] == 0, "it does not try again"
        finally:
            home.close()


def test_a_forked_child_has_connections_of_its_own(store: PostgresStore) -> None:
    index = store.open(WIKI_ID)

    def session() -> int:
        with index._connections.read_connection() as connection:
            return connection.execute("SELECT pg_backend_pid()").fetchall()[0][0]

    before = session()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, f"{session()} {session()} {len(index.get_page_blobs())}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        first, second, pages = said.read().split()
    assert status == 0
    assert first == second != str(before)
    assert pages == "3"
    assert session() == before, "the parent's connection is unchanged"
