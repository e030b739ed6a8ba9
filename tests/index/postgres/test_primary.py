"""Several hosts: the primary is found, a former primary is left, and a silent server is not waited for."""

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psycopg
import pytest

from tests.support.postgres_server import PostgresServer, run_postgres
from tests.support.wait import wait_until
from wikiholt.api.doctor import check_databases
from wikiholt.domain.wiki import DatabaseStatus
from wikiholt.errors import DatabaseUnavailable, InvalidSetting, StorageError
from wikiholt.index.postgres import primary
from wikiholt.index.postgres.address import DatabaseAddress
from wikiholt.index.postgres.admin import PostgresDatabaseAdmin
from wikiholt.index.postgres.assignments import ASSIGNMENT_TABLES
from wikiholt.index.postgres.catalog import Catalog
from wikiholt.index.postgres.errors import translate_errors
from wikiholt.index.postgres.pool import ConnectionPool, Login, RoleConnections
from wikiholt.index.postgres.primary import Primaries, Timeline, find_replication_fault
from wikiholt.index.postgres.store import PostgresStore
from wikiholt.wikis.home_tables import REGISTRY_TABLES

if TYPE_CHECKING:
    from wikiholt.domain.storage_protocols import DatabaseAdmin

SELECT = "SELECT 1"
NOTHING_CONFIRMED = "no standby confirms writes: a failover loses the writes that were acknowledged last"


def connect_to(*servers: PostgresServer) -> DatabaseAddress:
    """The address of these servers, in this order."""
    hosts = ",".join(str(server.place) for server in servers)
    return DatabaseAddress.parse(psycopg.conninfo.make_conninfo(servers[-1].get_dsn(), host=hosts))


def open_connections(address: DatabaseAddress, pool: ConnectionPool) -> RoleConnections:
    return RoleConnections(pool, lambda _: Login(address, "operator", ("public",), is_operator=True))


@pytest.fixture
def pool() -> Iterator[ConnectionPool]:
    made = ConnectionPool(5, wait_timeout_s=10)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("hosts", "count"),
    [("a", 1), ("a:1,b:2,c:3", 3), ("a,b:5433", 2), ("[::1]:1,b:2", 2)],
)
def test_an_address_may_have_several_hosts(hosts: str, count: int) -> None:
    address = DatabaseAddress.parse(f"postgresql://u:s@{hosts}/d?target_session_attrs=read-write")
    places = [dict(host.parameters) for host in address.hosts]
    assert len({(place["host"], place.get("port")) for place in places}) == count
    assert {place["target_session_attrs"] for place in places} == {"read-write"}
    wiki = address.with_login("w_a", "other")
    assert [dict(host.parameters)["user"] for host in wiki.hosts] == ["w_a"] * count
    assert wiki.location == address.location


@pytest.mark.parametrize("attributes", ["any", "standby", "prefer-standby", "read-only"])
def test_an_address_that_allows_a_standby_is_refused(attributes: str) -> None:
    with pytest.raises(InvalidSetting, match="standby"):
        DatabaseAddress.parse(f"postgresql://u:s@a,b/d?target_session_attrs={attributes}")


def test_an_address_with_more_hosts_than_ports_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="ports"):
        DatabaseAddress.parse("host=a,b,c port=1,2 dbname=d")


def test_a_standby_is_never_used_whatever_the_order_of_hosts(pool: ConnectionPool, pg: PostgresServer) -> None:
    with run_postgres(primary=pg) as second:
        one = open_connections(connect_to(second, pg), pool)
        with one.write_transaction() as connection:
            connection.execute("CREATE TEMP TABLE t (n int4)")
        only = open_connections(connect_to(second), pool)
        with pytest.raises(DatabaseUnavailable), only.read_connection():
            pass
        with pytest.raises(psycopg.OperationalError):  # the login itself is not rejected
            pool.primaries.connect(connect_to(second))


def test_sessions_of_a_former_primary_are_left_when_another_was_promoted(
    pool: ConnectionPool, pg: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(primary, "LOOK_S", 0.05)
    with run_postgres(primary=pg) as second:
        both = open_connections(connect_to(pg, second), pool)

        def get_host() -> str:
            with both.read_connection() as connection:
                return connection.info.host

        assert get_host() == str(pg.place)
        listener = both.open_dedicated()
        listener.execute("LISTEN wikiholt")
        promote(second)

        def is_left() -> bool:
            try:
                list(listener.notifies(timeout=0))
            except psycopg.OperationalError:
                return True
            return False

        wait_until(is_left, seconds=20)
        wait_until(lambda: get_host() == str(second.place), seconds=20)
        # The former primary still runs, and is refused also when no other host answers.
        second.stop()
        with pytest.raises(DatabaseUnavailable), both.read_connection():
            pass


def test_a_frozen_primary_is_left_within_seconds(pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(primary, "SILENCE_S", 0.5)
    with run_postgres() as first, run_postgres(primary=first) as second:
        both = open_connections(connect_to(first, second), pool)
        with both.read_connection() as connection:
            assert connection.info.host == str(first.place)
        pids = list_processes(first)
        began = time.monotonic()
        try:
            with both.read_connection() as connection:
                for pid in pids:
                    os.kill(pid, signal.SIGSTOP)
                promote(second)
                with pytest.raises(psycopg.OperationalError, match="no longer the primary"):
                    connection.execute(SELECT)

            def has_moved() -> bool:
                with suppress(DatabaseUnavailable), both.read_connection() as connection:
                    return connection.info.host == str(second.place)
                return False

            wait_until(has_moved)
            assert time.monotonic() - began < 60
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
        with both.read_connection() as connection:
            assert connection.info.host == str(second.place), "it does not go back"


def test_a_slow_statement_is_waited_for(
    pool: ConnectionPool, pg: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(primary, "SILENCE_S", 0.1)
    with open_connections(connect_to(pg), pool).read_connection() as connection:
        assert connection.execute("SELECT 1 FROM pg_sleep(0.8)").fetchone() == (1,)


def test_a_commit_that_no_standby_confirms_is_not_acknowledged(
    pool: ConnectionPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(primary, "CONFIRM_S", 0.3)
    with run_postgres({"synchronous_standby_names": "nobody"}) as server:
        connections = open_connections(connect_to(server), pool)
        with (
            pytest.raises(DatabaseUnavailable, match="confirmed"),
            connections.write_transaction() as connection,
        ):
            connection.execute("CREATE TABLE t (n int4)")
        with connections.read_connection() as connection:
            assert find_replication_fault(connection, connect_to(server, server)) == "", "writes wait for a standby"


def test_doctor_finds_standbys_that_confirm_nothing(pg: PostgresServer, database: str, tmp_path: Path) -> None:
    both = f"{database},{tmp_path}"
    found = [list_replication_faults(database, tmp_path), list_replication_faults(both, tmp_path)]
    assert found == [[], [(False, NOTHING_CONFIRMED)]], "one server has nothing to fail over to"
    with psycopg.connect(pg.get_dsn(), autocommit=True) as connection:
        connection.execute("ALTER ROLE operator SET synchronous_commit TO off")
        try:
            ((is_fine, detail),) = list_replication_faults(database, tmp_path)
        finally:
            connection.execute("ALTER ROLE operator RESET synchronous_commit")
    assert not is_fine
    assert detail.startswith("synchronous_commit is off")


def test_doctor_only_recommends_that_the_standby_of_another_database_confirms() -> None:
    fault = "no standby confirms writes"
    statuses = [DatabaseStatus(name, "", True, 1.0, 1, 10_000, replication_fault=fault) for name in ("home", "b")]
    checks = [check for check in check_databases(cast("DatabaseAdmin", FakeAdmin(statuses))) if fault in check.detail]
    assert [(check.subject, check.ok) for check in checks] == [("database home", False), ("database b", True)]
    assert "docs/scale.md#failover" in checks[0].advice


@pytest.mark.parametrize("code", ["25006", "57P01", "57P02", "57P03", "25P03", "08006"])
def test_errors_of_a_failover_can_be_tried_again(code: str) -> None:
    with pytest.raises(DatabaseUnavailable) as caught, translate_errors():
        raise psycopg.errors.lookup(code)("")
    assert caught.value.status == 503
    assert caught.value.retry_after > 0


def test_a_full_disk_is_not_a_failover() -> None:
    with pytest.raises(StorageError), translate_errors():
        raise psycopg.errors.DiskFull("")


def test_other_threads_run_while_a_host_is_silent() -> None:
    """libpq's ping would hold the interpreter's lock until its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        home = Catalog(f"postgresql://u:s@127.0.0.1:{silent.getsockname()[1]}/d?connect_timeout=2")
        counts, done = [0], threading.Event()

        def count() -> None:
            while not done.wait(0.01):
                counts[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        try:
            with pytest.raises(DatabaseUnavailable), home.read_connection():
                pass
        finally:
            done.set()
            thread.join()
            home.close()
        assert counts[0] > 20


def test_a_new_cluster_at_the_same_address_is_accepted(pg: PostgresServer) -> None:
    """As after pg_upgrade, which begins with timeline 1 again."""
    address, primaries = connect_to(pg, pg), Primaries()
    primaries._newest[address.location] = Timeline(1, 7)
    with primaries.connect(address) as session:
        assert session.execute(SELECT).fetchone() == (1,)


@dataclass
class FakeAdmin:
    """The databases of an administrator: their state, and no moves."""

    statuses: list[DatabaseStatus]

    def get_statuses(self) -> list[DatabaseStatus]:
        return self.statuses

    def find_unfinished_moves(self) -> list[str]:
        return []


def list_replication_faults(address: str, scratch: Path) -> list[tuple[bool, str]]:
    """What doctor says about replication, in a process that starts now."""
    catalog, pool = Catalog(address, (REGISTRY_TABLES, ASSIGNMENT_TABLES)), ConnectionPool(2)
    admin = PostgresDatabaseAdmin(catalog, pool, PostgresStore(catalog, pool, scratch), scratch, 5)
    try:
        return [(check.ok, check.detail) for check in check_databases(admin) if "loses" in check.detail]
    finally:
        admin.close()


def promote(server: PostgresServer) -> None:
    with psycopg.connect(server.get_dsn(), autocommit=True) as connection:
        connection.execute("SELECT pg_promote()")


def list_processes(server: PostgresServer) -> list[int]:
    """The server's main process and its children."""
    pid = int((server.data / "postmaster.pid").read_text().split()[0])
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]
