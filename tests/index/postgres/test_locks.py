"""Locks held by one wiki's role do not block other wikis, and block its own wiki only while held."""

import fcntl
import logging
import re
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from tests.support.paths import ROOT
from tests.support.postgres_hostile import holding_everything, refused
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import EMBEDDER, RECIPE, create_filled_index, open_node_store, read_lease_expiry
from wikiholt.domain.index import IndexChange
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.errors import Busy, InvalidSetting, LockTimeout
from wikiholt.index.postgres import locks, move, schema
from wikiholt.index.postgres import store as store_module
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.leases import WRITE_LEASE
from wikiholt.index.postgres.listener import Listener
from wikiholt.index.postgres.locks import (
    LOCK_TRIES,
    OPERATOR_LOCK_TIMEOUT_S,
    OPERATOR_STATEMENT_TIMEOUT_S,
    WIKI_LOCK_TIMEOUT_S,
    TimeoutCounter,
    retry_lock_timeouts,
)
from wikiholt.index.postgres.pool import Connection
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.testing.fakes import make_entry

HOSTILE, CALM, LEAVING, MOVING, COMING = (letter * 20 for letter in "hclmn")
NEEDLE = KeywordQuery(terms=("needle",))
LOCK_TIMEOUT_S = 0.5


@pytest.fixture(scope="module")
def shared_store(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    first, second = pg.create_database(), pg.create_database()
    place = tmp_path_factory.mktemp("node")
    with open_node_store(first, place, linger=0.0, lock_timeout_s=LOCK_TIMEOUT_S) as made:
        made.placements.catalog.add_database("second", second)
        yield made
    pg.drop_database(first)
    pg.drop_database(second)


@pytest.fixture
def store(shared_store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """Indexed wikis on one database. HOSTILE will take every lock it can."""
    monkeypatch.setattr(move, "_QUIET_S", 0.1)
    monkeypatch.setattr(store_module, "SWEEP_LOCK_TIMEOUT_S", LOCK_TIMEOUT_S)
    for wiki_id in (HOSTILE, CALM, LEAVING, MOVING):
        shared_store.placements.provision(wiki_id, "home")
        create_filled_index(shared_store, wiki_id).close()
    yield shared_store
    for wiki_id in shared_store.list_wiki_ids():
        shared_store.delete(wiki_id)


def address(store: PostgresStore, wiki_id: str) -> str:
    return store.placements.make_login(store.placements.get(wiki_id)).address.conninfo


@pytest.fixture
def hostile(store: PostgresStore) -> Iterator[Connection]:
    """A session of HOSTILE's role that holds every lock it can."""
    others = [store.placements.get(wiki_id) for wiki_id in (CALM, LEAVING, MOVING)]
    with holding_everything(address(store, HOSTILE), store.placements.get(HOSTILE), others) as connection:
        yield connection


def synced(store: PostgresStore, wiki_id: str, revision: str) -> int:
    """What a sync does with a store: under the write lease a change, then a new generation and a cleanup."""
    with store.write_lock(wiki_id, 1.0):
        with closing(store.open(wiki_id)) as index:
            index.apply(IndexChange(pages=(make_entry("more.md", ["needle more"], EMBEDDER),), revision=revision))
        with closing(store.create_generation(wiki_id, RECIPE)) as index:
            pages = tuple(make_entry(f"{number}.md", ["needle"], EMBEDDER) for number in range(4))
            index.apply(IndexChange(pages=pages, revision=revision))
            store.publish(wiki_id, index.generation)
    store.remove_old_generations(wiki_id)
    with closing(store.open(wiki_id)) as index:
        assert index.get_state().revision == revision
        return len(index.search_keywords(NEEDLE, 10, PageFilter()))


def test_a_wiki_that_holds_every_lock_it_can_stops_no_other(
    store: PostgresStore, hostile: Connection, caplog: pytest.LogCaptureFixture
) -> None:
    counters = store.placements.catalog.pool.timeout_counter, store.placements._pool.timeout_counter
    counts = [counter.counts for counter in counters]
    assert synced(store, CALM, "r2") == 4
    assert store.open(CALM).check() == []
    assert f"w_{COMING}" in store.placements.provision(COMING, "home").schema
    assert len(create_filled_index(store, COMING).get_page_blobs()) == 3
    assert move.move_wiki(store, MOVING, "second")
    assert synced(store, MOVING, "r2") == 4
    went = store.delete(LEAVING)
    assert f"w_{LEAVING}" in went
    assert not store.exists(LEAVING)
    assert [counter.counts for counter in counters] == counts, "nothing waited for a lock"
    assert not hostile.broken, "no session had to be ended"


def test_the_wiki_itself_fails_soon_and_recovers_once_the_locks_are_gone(
    store: PostgresStore, caplog: pytest.LogCaptureFixture
) -> None:
    counts = store.placements.catalog.pool.timeout_counter.counts["lock"]
    with holding_everything(address(store, HOSTILE), store.placements.get(HOSTILE)):
        with caplog.at_level(logging.WARNING), pytest.raises(LockTimeout):
            store.leases._acquire(HOSTILE, WRITE_LEASE, 0.1)
        with pytest.raises(LockTimeout) as caught:
            synced(store, HOSTILE, "r2")
        assert (caught.value.status, caught.value.code) == (503, "lock-timeout")
        assert caught.value.hint
    assert store.placements.catalog.pool.timeout_counter.counts["lock"] > counts
    assert HOSTILE in caplog.text
    assert synced(store, HOSTILE, "r2") == 4


def test_a_wiki_that_holds_every_lock_can_be_removed(store: PostgresStore) -> None:
    with holding_everything(address(store, HOSTILE), store.placements.get(HOSTILE)) as session:
        went = store.delete(HOSTILE)
        with pytest.raises(psycopg.OperationalError):
            session.execute("SELECT 1")
    assert f"w_{HOSTILE}" in went
    assert any(removed.startswith("role ") for removed in went)


def test_leases_of_other_wikis_are_renewed_while_the_rows_of_one_are_locked(store: PostgresStore) -> None:
    with store.leases.hold(HOSTILE, WRITE_LEASE, 1.0), store.leases.hold(CALM, WRITE_LEASE, 1.0):
        with holding_everything(address(store, HOSTILE), store.placements.get(HOSTILE)):
            calm_until_s = read_lease_expiry(store, CALM)
            store.leases.renew("home")
            assert read_lease_expiry(store, CALM) > calm_until_s
            with pytest.raises(Busy), store.leases.hold(CALM, WRITE_LEASE, 0):
                pass
        hostile_until_s = read_lease_expiry(store, HOSTILE)
        store.leases.renew("home")
        assert read_lease_expiry(store, HOSTILE) > hostile_until_s


def test_a_grown_wiki_gets_indexes_when_its_tables_are_free(store: PostgresStore) -> None:
    with store.write_lock(HOSTILE, 1.0), closing(store.open(HOSTILE)) as index:
        pages = tuple(make_entry(f"p{number}.md", ["needle"], EMBEDDER) for number in range(300))
        index.apply(IndexChange(pages=pages, revision="r2"))
    placement = store.placements.get(HOSTILE)
    with holding_everything(address(store, HOSTILE), placement):
        store.remove_old_generations(HOSTILE)
    with store.placements.get_operator_connections(placement).write_transaction() as connection:
        made = schema.create_missing_indexes(connection, placement.schema)
        assert "g1_pages_file" in made
        assert len(made) == 10
        assert schema.create_missing_indexes(connection, placement.schema) == []


def test_a_role_that_cannot_be_dropped_loses_its_login(store: PostgresStore, caplog: pytest.LogCaptureFixture) -> None:
    leaving = store.placements.get(LEAVING)
    login = address(store, LEAVING)
    with holding_everything(address(store, HOSTILE), store.placements.get(HOSTILE), [leaving]):
        went = store.delete(LEAVING)
        assert f"role {leaving.role}" not in went
    assert leaving.role in caplog.text
    with pytest.raises(psycopg.OperationalError, match="not permitted to log in"):
        psycopg.connect(login)


def test_a_wikis_role_cannot_reach_the_operators_locks(store: PostgresStore) -> None:
    guests = store.placements.get_database(store.placements.get(HOSTILE)).group
    with psycopg.connect(address(store, HOSTILE), autocommit=True) as session:
        session.execute("SET default_transaction_read_only TO off")
        for statement in (
            "SELECT 1 FROM wikiholt.locks",
            "SELECT 1 FROM wikiholt.locks FOR UPDATE",
            "LOCK TABLE wikiholt.locks IN ACCESS SHARE MODE",
            "LOCK TABLE wikiholt.placements IN ACCESS SHARE MODE",
            "SELECT 1 FROM wikiholt.placements FOR UPDATE",
            "INSERT INTO wikiholt.locks (name) VALUES ('home')",
            f"GRANT {guests} TO CURRENT_USER",
        ):
            assert refused(session, statement) == "42501", statement
        refused(session, f"DROP OWNED BY {guests}")
    assert synced(store, HOSTILE, "r2") == 4, "its group still has access"


def test_every_session_has_both_timeouts(database: str, tmp_path: Path) -> None:
    shown = "SELECT current_setting('lock_timeout')::interval, current_setting('statement_timeout')::interval"

    def read_timeouts(connection: Connection) -> tuple[float, float]:
        lock, statement = connection.execute(shown).fetchone() or (None, None)
        assert lock is not None
        assert statement is not None
        return lock.total_seconds(), statement.total_seconds()

    operator = (OPERATOR_LOCK_TIMEOUT_S, OPERATOR_STATEMENT_TIMEOUT_S)
    with open_node_store(database, tmp_path, lock_timeout_s=None) as store:
        home, connections = (
            store.placements.catalog,
            store.placements.get_operator_connections(store.placements.provision(CALM)),
        )
        for context in (
            home.read_connection(),
            home.write_transaction(),
            home.read_snapshot(),
            home.open_dedicated(),
            connections.read_connection(),
            connections.write_transaction(),
        ):
            with context as connection:
                assert read_timeouts(connection) == operator
        for context in (
            store.get_connections(CALM).read_connection(),
            store.get_connections(CALM).write_transaction(),
            store.get_connections(CALM).read_snapshot(),
        ):
            with context as connection:
                assert read_timeouts(connection) == (WIKI_LOCK_TIMEOUT_S, 30.0)
        with connections.write_transaction(lock_timeout_s=0.25, statement_timeout_s=7200) as connection:
            assert read_timeouts(connection) == (0.25, 7200)


def test_a_statement_that_runs_too_long_is_counted(database: str, tmp_path: Path) -> None:
    with open_node_store(database, tmp_path) as store:
        connections = store.placements.get_operator_connections(store.placements.provision(CALM))
        with (
            pytest.raises(Exception, match="took too long"),
            connections.write_transaction(statement_timeout_s=0.05) as connection,
        ):
            connection.execute("SELECT pg_sleep(5)")
        assert store.placements.catalog.pool.timeout_counter.counts == {"lock": 0, "statement": 1}


def test_locks_of_two_nodes_exclude_each_other_while_the_table_is_created(database: str) -> None:
    with psycopg.connect(database) as one, psycopg.connect(database) as other:
        locks.acquire_lock(one, "a")
        other.execute("SET lock_timeout TO '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable), other.transaction():
            locks.acquire_lock(other, "a")
        one.commit()
        locks.acquire_lock(other, "a")
        locks.acquire_lock(other, "a")
        locks.delete_lock(other, "a")
        other.commit()
        assert one.execute("SELECT count(*) FROM wikiholt.locks").fetchone() == (0,)


def test_without_the_functions_for_advisory_locks_everything_works(database: str, tmp_path: Path) -> None:
    """The steps of the manual for administrators."""
    manual = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
    (revoking,) = re.findall(r"```sql\n(DO \$\$.*?advisory.*?)```", manual, re.DOTALL)
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(revoking)
    with open_node_store(database, tmp_path) as store:
        create_filled_index(store, CALM).close()
        assert synced(store, CALM, "r2") == 4
        with psycopg.connect(address(store, CALM), autocommit=True) as session:
            assert refused(session, "SELECT pg_advisory_lock(1)") == "42501"
            assert refused(session, "SELECT pg_try_advisory_xact_lock_shared(1, 2)") == "42501"


def test_a_database_with_a_foreign_schema_wikiholt_is_refused(pg: PostgresServer, database: str) -> None:
    second = pg.create_database()
    with psycopg.connect(second, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute("CREATE SCHEMA wikiholt")
        connection.execute(f"CREATE ROLE plain_{name} LOGIN CREATEROLE PASSWORD 'x'")
        connection.execute(f"GRANT CREATE ON DATABASE {name} TO plain_{name}")
    with closing(Catalog(database)) as home, pytest.raises(InvalidSetting, match="schema wikiholt") as caught:
        home.add_database("second", pg.get_dsn(name, f"plain_{name}", "x"))
    assert caught.value.hint
    pg.drop_database(second)


def test_a_lock_that_is_not_granted_is_retried_with_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    # Only here: other threads sleep as before.
    monkeypatch.setattr(locks, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    tries = iter([LockTimeout("a"), LockTimeout("b"), None])

    def attempt() -> str:
        error = next(tries)
        if error is not None:
            raise error
        return "done"

    assert retry_lock_timeouts(attempt) == "done"
    assert len(slept) == 2
    assert slept[0] < 0.31 <= slept[1] + 0.11

    def never() -> str:
        raise LockTimeout("never")

    with pytest.raises(LockTimeout, match="never"):
        retry_lock_timeouts(never)
    assert len(slept) == 2 + LOCK_TRIES - 1


def test_a_timeout_is_counted_each_time_and_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    counter = TimeoutCounter()
    for _ in range(3):
        counter.record("lock", "w_one")
    counter.record("statement", "w_other")
    assert counter.counts == {"lock": 3, "statement": 1}
    logged = [record.message for record in caplog.records if record.name == locks.__name__]
    assert [message.split(":")[0] for message in logged] == ["w_one", "w_other"]


def test_a_node_listens_whatever_number_its_descriptors_have(database: str) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 4096), hard), hard))
    with closing(Catalog(database)) as home:
        listener = Listener(home, "listener", lambda _: None)
        receiver, other_end = socket.socketpair()
        high = fcntl.fcntl(receiver.fileno(), fcntl.F_DUPFD, 2000)
        receiver.close()
        with socket.socket(fileno=high) as listener._interrupt_socket:
            other_end.close()
            began = time.monotonic()
            listener._wait(None, 250)  # returns at once, because the other end is closed
            assert time.monotonic() - began < 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
