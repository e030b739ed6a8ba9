"""A database that is away harms only its own wikis, for as long as it is away; nothing needs to be started again."""

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest
from pg_server import PgServer, running
from pg_stores import EMBEDDER, ONE, OTHER, filled, node
from pg_waiting import until

from wikiholt.errors import DatabaseAway
from wikiholt.model import Change, Filter, WordQuery
from wikiholt.stores.postgres import placing
from wikiholt.stores.postgres.home import Home
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.testing.entries import entry

NEEDLE = WordQuery(terms=("needle",))


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[PgServer]:
    """A second server, which is stopped and started here."""
    with running() as server:
        yield server


@pytest.fixture
def store(database: str, elsewhere: PgServer, tmp_path: Path) -> Iterator[PostgresStore]:
    """Two wikis, each on a server of its own; the home is on the first."""
    second = elsewhere.new_database()
    with node(database, tmp_path / "node", lease=1.0) as made:
        made.placements.home.add_database("second", second)
        for wiki_id, place in ((ONE, "home"), (OTHER, "second")):
            made.placements.make(wiki_id, place)
            filled(made, wiki_id).close()
        yield made
        for wiki_id in (ONE, OTHER):
            made.drop(wiki_id)
    elsewhere.drop_database(second)


def answers(search: Callable[[], object]) -> bool:
    try:
        search()
    except DatabaseAway:
        return False
    return True


def test_a_database_that_is_away_leaves_the_wikis_of_others_alone(store: PostgresStore, elsewhere: PgServer) -> None:
    one, other = store.open(ONE), store.open(OTHER)
    elsewhere.stop()
    try:
        for ask in (
            other.state,
            lambda: other.words(NEEDLE, 5, Filter()),
            lambda: other.apply(Change(revision="r2")),
            lambda: store.open(OTHER),
            lambda: store.published(OTHER),
            lambda: store.prove(OTHER, fully=True),
            lambda: store.set_aside(OTHER, "no"),
            lambda: store.drop(OTHER),
            lambda: store.writing(OTHER, 0).__enter__(),
        ):
            with pytest.raises(DatabaseAway) as caught:
                ask()
            assert caught.value.retry_after > 0
            assert caught.value.hint
            assert not any(word in caught.value.message for word in ("host", "/", "w_", "port"))
        assert store.note(OTHER, "health") is None
        assert store.seated(OTHER) is None
        assert len(one.words(NEEDLE, 5, Filter())) == 3
        with store.writing(ONE, 0):
            one.apply(Change(pages=(entry("new.md", ["needle"], EMBEDDER),), revision="r2"))
    finally:
        elsewhere.start()
    until(lambda: answers(other.state))
    assert len(other.words(NEEDLE, 5, Filter())) == 3
    assert other.check() == []
    assert store.aside(OTHER) == []
    assert store.drop(OTHER), "who asks again is done with it"
    assert store.ids() == [ONE]


def test_connections_that_broke_while_they_were_idle_are_nobodys_loss(
    store: PostgresStore, elsewhere: PgServer
) -> None:
    other = store.open(OTHER)
    for how in (signal.SIGINT, signal.SIGQUIT):
        with other._door.snapshot(), other._door.snapshot(), other._door.snapshot():
            pass  # three connections lie in the pool
        elsewhere.stop(how)
        elsewhere.start()
        assert other.version() >= 1
        assert len(other.words(NEEDLE, 5, Filter())) == 3
        with store.writing(OTHER, 0):
            other.apply(Change(revision=f"r{how}"))
        assert other.state().revision == f"r{how}"
        with store.placements.home.database("second").door.reading() as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_readers_over_a_crash_hear_that_it_is_away_and_nothing_else(store: PostgresStore, elsewhere: PgServer) -> None:
    other = store.open(OTHER)
    done, heard = Event(), []

    def read() -> None:
        while not done.is_set():
            try:
                heard.append(len(other.words(NEEDLE, 5, Filter())))
            except Exception as error:  # noqa: BLE001
                heard.append(type(error))

    threads = [Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        until(lambda: 3 in heard)
        elsewhere.stop(signal.SIGQUIT)
        until(lambda: DatabaseAway in heard)
        elsewhere.start()
        count = len(heard)
        until(lambda: 3 in heard[count:])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert set(heard) == {3, DatabaseAway}


def test_wikis_elsewhere_answer_while_the_home_is_away(
    store: PostgresStore, pg: PgServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placing, "_FRESH", 0.0)
    one, other = store.open(ONE), store.open(OTHER)
    pg.stop()
    try:
        assert store.published(OTHER) == 1
        assert len(other.words(NEEDLE, 5, Filter())) == 3
        with pytest.raises(DatabaseAway):
            one.state()
        with pytest.raises(DatabaseAway):
            store.published("cccccccccccccccccccc")
    finally:
        pg.start()
    until(lambda: answers(one.state))
    assert len(one.words(NEEDLE, 5, Filter())) == 3


def test_a_host_that_says_nothing_is_given_up_on_soon_and_then_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        home = Home(f"postgresql://u:secret@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2")
        try:
            for at_most in (30.0, 0.5):
                began = time.monotonic()
                with pytest.raises(DatabaseAway) as caught, home.reading():
                    pass
                assert time.monotonic() - began < at_most
                assert "127" not in caught.value.message
                assert "secret" not in str(caught.value.__cause__)
        finally:
            home.close()


def test_a_forked_child_has_connections_of_its_own(store: PostgresStore) -> None:
    index = store.open(ONE)

    def session() -> int:
        with index._door.reading() as connection:
            return connection.execute("SELECT pg_backend_pid()").fetchall()[0][0]

    before = session()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, f"{session()} {session()} {len(index.pages())}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        first, second, pages = said.read().split()
    assert status == 0
    assert first == second != str(before)
    assert pages == "3"
    assert session() == before, "the parent's is as it was"
