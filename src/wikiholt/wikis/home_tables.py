"""What all nodes share in the home database: the registry and the sign-ins.

Writers of all nodes are serialized; readers never wait. Readers see the last committed state. Every write of the
registry notifies the nodes, which follow it with a copy in memory. If the home database is unreachable, the operations
raise DatabaseUnavailable, and the request is rejected.
"""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache

import psycopg
from psycopg import sql

from wikiholt.index.postgres.assignments import REGISTRY_CHANGED, notify_nodes
from wikiholt.index.postgres.catalog import Catalog, TableSet
from wikiholt.index.postgres.listener import Listener
from wikiholt.index.postgres.pool import Connection
from wikiholt.wikis.registry_schema import (
    CREATE_GRANTS,
    CREATE_REVOKED,
    CREATE_STATE,
    TABLE_COLUMNS,
)
from wikiholt.wikis.small_store import ResultRows, StoreConnection, Value, make_text_error

REGISTRY_TABLES = TableSet(
    "registry",
    (
        'CREATE TABLE wikis (id text PRIMARY KEY, slug text COLLATE "C" NOT NULL UNIQUE, source text NOT NULL,'
        " settings text NOT NULL, created_at text NOT NULL, repository text NOT NULL, row_check text NOT NULL)",
        "CREATE TABLE hosts (host text PRIMARY KEY, wiki_id text NOT NULL, row_check text NOT NULL)",
        "CREATE INDEX hosts_of_a_wiki ON hosts (wiki_id)",
        'CREATE TABLE keys (id text COLLATE "C" PRIMARY KEY, wiki_id text, scope text NOT NULL, label text NOT NULL,'
        ' created_at text COLLATE "C" NOT NULL, expires_at text, digest text NOT NULL, row_check text NOT NULL)',
        "CREATE INDEX keys_of_a_wiki ON keys (wiki_id)",
        "CREATE TABLE sign_ins (digest text PRIMARY KEY, client text NOT NULL, person text NOT NULL,"
        ' created_at text COLLATE "C" NOT NULL, expires_at text COLLATE "C" NOT NULL)',
        "CREATE INDEX sign_ins_of_a_client ON sign_ins (client)",
        CREATE_REVOKED,
        CREATE_STATE,
        "INSERT INTO state SELECT 'version', md5(random()::text)",
        CREATE_GRANTS,
    ),
)

_MAX_REFRESH_SHARE = 0.1
"""The share of the time in which a process reads the registry again while it changes without pause."""


class SharedStore:
    """A `SmallStore` in the home database."""

    is_shared = True

    def __init__(self, catalog: Catalog, tables: Sequence[str], *, notifies: bool, timeout_s: float = 10.0) -> None:
        """Writers lock the first of the tables. With `notifies`, each write notifies the nodes."""
        self._catalog = catalog
        self._tables = tables
        self._notifies = notifies
        self._timeout_s = timeout_s

    @contextmanager
    def read(self) -> Iterator[StoreConnection]:
        with self._catalog.read_connection() as connection:
            yield PlaceholderConnection(connection)

    @contextmanager
    def read_snapshot(self) -> Iterator[StoreConnection]:
        with self._catalog.read_snapshot() as connection:
            yield PlaceholderConnection(connection)

    @contextmanager
    def write(self) -> Iterator[StoreConnection]:
        with self._lock_tables() as connection:
            yield PlaceholderConnection(connection)

    def get_identity(self) -> object:
        """A process checks the tables once: readers of other nodes see every committed change."""
        return os.getpid()

    def replace(self, fill: Callable[[StoreConnection], None]) -> str | None:
        name = f"broken_{datetime.now(UTC):%Y%m%dt%H%M%S%fz}"
        with self._lock_tables() as connection:
            quarantine = sql.Identifier(name)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(quarantine))
            for table in self._tables:
                copy = sql.SQL("CREATE TABLE {}.{} AS TABLE {}").format(quarantine, *[sql.Identifier(table)] * 2)
                connection.execute(copy)
            fill(PlaceholderConnection(connection))
        return name

    def check(self) -> None:
        """Check nothing: PostgreSQL reports its own damage."""

    def follow(self, refresh: Callable[[], object], interval_s: float) -> Callable[[], None]:
        def work(connection: Connection) -> None:
            while not listener.is_closed():
                started = time.monotonic()
                refresh()
                pause_s = (time.monotonic() - started) / _MAX_REFRESH_SHARE
                until = started + interval_s
                while not listener.is_closed() and (left := until - time.monotonic()) > 0:
                    if REGISTRY_CHANGED in listener.receive(connection, left):
                        until = min(until, started + pause_s)

        listener = Listener(self._catalog, "wikiholt-registry", work)
        listener.start()
        return listener.close

    @contextmanager
    def _lock_tables(self) -> Iterator[Connection]:
        """A write transaction that excludes writers of all nodes. Raises Busy."""
        with self._catalog.write_transaction() as connection, _translate_text_errors():
            # Both end with the transaction.
            connection.execute(sql.SQL("SET LOCAL lock_timeout TO {}").format(f"{self._timeout_s:.3f}s"))
            connection.execute(sql.SQL("LOCK TABLE {} IN EXCLUSIVE MODE").format(sql.Identifier(self._tables[0])))
            yield connection
            if self._notifies:
                notify_nodes(connection, REGISTRY_CHANGED)


def open_registry(catalog: Catalog, timeout_s: float = 10.0) -> SharedStore:
    """The tables of the registry."""
    return SharedStore(catalog, ("state", *TABLE_COLUMNS), notifies=True, timeout_s=timeout_s)


def open_sessions(catalog: Catalog) -> SharedStore:
    """The sign-ins and grants, so that all nodes see the same."""
    return SharedStore(catalog, ("grants", "sign_ins"), notifies=False)


def describe_leftover_schemas(catalog: Catalog) -> str:
    """Describe the schemas of wikis in the home database; empty if there are none."""
    with catalog.read_connection() as connection:
        row = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' LIMIT 1").fetchone()
        return "schemas of wikis" if row else ""


class PlaceholderConnection:
    """Adapts a connection to statements with `?` placeholders."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[Value] = (), /) -> ResultRows:
        return self._connection.execute(_convert_placeholders(statement), values)


@cache
def _convert_placeholders(statement: str) -> sql.SQL:
    """Replace SQLite placeholders. All statements are constants of the registry, so the cache stays small."""
    return sql.SQL(statement.replace("?", "%s"))


@contextmanager
def _translate_text_errors() -> Iterator[None]:
    try:
        yield
    except (psycopg.DataError, UnicodeEncodeError) as error:
        raise make_text_error() from error
