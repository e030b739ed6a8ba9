"""Refused connections name their reason, and a role that cannot log in is repaired."""

import logging
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import WIKI_ID, create_filled_index, open_node_store
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.storage_protocols import NodeMessage
from wikiholt.errors import LoginRefused, TooManyConnections
from wikiholt.index.postgres import assignments
from wikiholt.index.postgres import pool as pool_module
from wikiholt.index.postgres.admin import PostgresDatabaseAdmin
from wikiholt.index.postgres.assignments import describe_shortage
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.pool import Connection, ConnectionPool, Login
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.wikis import home_tables

OTHER_ID = "bbbbbbbbbbbbbbbbbbbb"
TABLES = (home_tables.REGISTRY_TABLES, assignments.ASSIGNMENT_TABLES)


@pytest.fixture
def store(database: str, tmp_path: Path) -> Iterator[PostgresStore]:
    with open_node_store(database, tmp_path / "node") as made:
        yield made
        for wiki_id in made.list_wiki_ids():
            made.delete(wiki_id)


def close_sessions(store: PostgresStore, wiki_id: str = WIKI_ID) -> None:
    placements = store.placements
    placements._pool.close_idle(placements.make_login(placements.get(wiki_id)))


def test_too_many_connections_are_named_counted_and_logged(
    store: PostgresStore, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    create_filled_index(store, WIKI_ID).close()
    close_sessions(store)
    role = store.placements.get(WIKI_ID).role
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE {role} CONNECTION LIMIT 0")
        with pytest.raises(TooManyConnections) as caught:
            store.get_published(WIKI_ID)
        connection.execute(f"ALTER ROLE {role} CONNECTION LIMIT -1")
    assert "max_connections" in caught.value.hint
    assert "postgres.connections" in caught.value.hint
    assert "too many connections: raise max_connections or lower postgres.connections" in caplog.text
    assert store.placements._pool.refusal_counter.counts["connections"] >= 1
    assert store.get_published(WIKI_ID) == 1


def test_a_full_server_gets_an_idle_connection_back(
    store: PostgresStore, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A busy server needs longer to end the closed session.
    monkeypatch.setattr(pool_module, "_ROOM_DELAYS_S", (*pool_module._ROOM_DELAYS_S, *[1.0] * int(TIMEOUT_S)))
    for wiki_id in (WIKI_ID, OTHER_ID):
        create_filled_index(store, wiki_id).close()
    close_sessions(store, OTHER_ID)
    store.get_published(WIKI_ID)
    name = psycopg.conninfo.conninfo_to_dict(database)["dbname"]
    count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    with psycopg.connect(database, autocommit=True) as connection:
        (used,) = connection.execute(count).fetchone() or (0,)
        connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT {used}")
        assert store.get_published(OTHER_ID) == 1, "the idle connection of the other wiki was closed"
        connection.execute(f"ALTER DATABASE {name} CONNECTION LIMIT -1")


def test_a_server_that_ends_the_closed_session_late_is_tried_again(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_filled_index(store, WIKI_ID).close()
    store.get_published(WIKI_ID)
    placements = store.placements
    pool, login = placements._pool, placements.make_login(placements.get(WIKI_ID))
    while pool._idle[1:]:
        pool._idle.pop().connection.close()
    connect, refusals = pool.connect, [TooManyConnections("no connection is left")] * 3

    def refuse_at_first(login: Login) -> Connection:
        if refusals:
            raise refusals.pop()
        return connect(login)

    monkeypatch.setattr(pool, "connect", refuse_at_first)
    pool._connect_with_room(login).close()
    assert not pool._idle, "the idle connection was closed"
    refusals.append(TooManyConnections("no connection is left"))
    with pytest.raises(TooManyConnections):
        pool._connect_with_room(login)


def test_a_role_with_another_password_is_repaired_by_the_next_writer(store: PostgresStore) -> None:
    create_filled_index(store, WIKI_ID).close()
    with store.get_connections(WIKI_ID).write_transaction() as connection:
        connection.execute("ALTER ROLE CURRENT_USER PASSWORD 'x'; ALTER ROLE CURRENT_USER SET work_mem TO '64kB'")
    close_sessions(store)
    with pytest.raises(LoginRefused) as caught:
        store.get_published(WIKI_ID)
    assert "doctor --fix" in caught.value.hint
    assert store.placements._pool.refusal_counter.counts["login"] == 1
    with store.write_lock(WIKI_ID, 1.0):
        assert store.open(WIKI_ID).get_state().pages == 3
    with store.get_connections(WIKI_ID).read_connection() as connection:
        assert connection.execute("SHOW work_mem").fetchone() != ("64kB",), "its settings are the default again"


def test_a_node_warns_when_it_joins_a_server_with_too_few_connections(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = Catalog(database, TABLES)
    node = assignments.PostgresAssignments(catalog, 5.0, 5_000)
    with caplog.at_level(logging.WARNING):
        node.start(lambda _, __: None)
        wait_until(lambda: "may use 5011 connections" in caplog.text)
    assert "raise max_connections" in caplog.text
    node.close()
    catalog.close()


def test_what_a_server_allows_is_compared_with_what_nodes_use() -> None:
    assert describe_shortage(3, 42, 200) == ""
    assert describe_shortage(3, 42, 97) == (
        "3 nodes may use 126 connections, and the server allows 97: raise max_connections or lower postgres.connections"
    )


def test_the_administrator_sees_a_shortage_and_whether_wikis_can_log_in(
    database: str, pg: PostgresServer, tmp_path: Path
) -> None:
    catalog, pool = Catalog(database, TABLES), ConnectionPool(2)
    admin = PostgresDatabaseAdmin(catalog, pool, PostgresStore(catalog, pool, tmp_path), tmp_path, 5_000)
    (status,) = admin.get_statuses()
    assert "5011 connections" in status.shortage
    assert admin.check_wiki_login("home") == ""
    rules = pg.place / "data" / "pg_hba.conf"
    before = rules.read_text()
    try:
        rules.write_text(f"local all operator scram-sha-256\nlocal all all reject\n{before}")
        _reload(database)
        assert "pg_hba.conf rejects" in admin.check_wiki_login("home")
    finally:
        rules.write_text(before)
        _reload(database)
        admin.close()
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT 1 FROM pg_roles WHERE rolname ~ '^wikiholt_check'").fetchall() == []


def _reload(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        statement = "SELECT pg_conf_load_time()"
        before = connection.execute(statement).fetchone()
        connection.execute("SELECT pg_reload_conf()")
        wait_until(lambda: connection.execute(statement).fetchone() != before)


def test_notifications_name_no_wiki(database: str) -> None:
    catalog = Catalog(database, TABLES)
    node = assignments.PostgresAssignments(catalog)
    with psycopg.connect(database, autocommit=True) as listener:
        node.send("any", NodeMessage.TOUCH)  # creates the tables
        listener.execute(f"LISTEN {assignments.NOTIFY_CHANNEL}")
        for message in (NodeMessage.TOUCH, NodeMessage.CHANGED, NodeMessage.REINDEX):
            node.send(WIKI_ID, message)
        payloads = [notification.payload for notification in listener.notifies(timeout=TIMEOUT_S, stop_after=3)]
    catalog.close()
    assert payloads == [assignments.WIKI_MESSAGE] * 3
