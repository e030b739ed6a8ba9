"""What all nodes share in the home database: the registry, the sign-ins, and the token buckets of rate limits.

Writers of all nodes are serialized; readers never wait. Readers see the last committed state, so a key that one node
revokes is rejected by all others at once. Every write of the registry notifies the nodes.

A token bucket is one row, and takes one statement per request. All times are the database's. The table is unlogged, so
every bucket is full after a crash of the server. If the home database is unreachable, the operations raise
DatabaseUnavailable, and the request is rejected.
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
from wikiholt.index.postgres.pool import Connection
from wikiholt.wikis.rate_limit import BucketSize
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

BUCKET_TABLES = TableSet(
    "buckets",
    (
        "CREATE UNLOGGED TABLE buckets (kind text, name text, level float8 NOT NULL, rest float8 NOT NULL,"
        " at timestamptz NOT NULL, PRIMARY KEY (kind, name)) WITH (fillfactor = 50)",
    ),
)

_CLEANUP_INTERVAL_S = 600.0
"""How often a node deletes the buckets that have been unused long enough to be full."""
# `rest` is the number of tokens left, or negative if tokens are missing. The row lock serializes the nodes. A time that
# is a minute ahead is older than a change of the server's clock.
_AT_EXPRESSION = (
    "CASE WHEN b.at > statement_timestamp() + interval '1 minute' THEN statement_timestamp()"
    " ELSE greatest(b.at, statement_timestamp()) END"
)
_LEVEL_EXPRESSION = (
    "least(%(capacity)s, b.level + greatest(0, extract(epoch FROM statement_timestamp() - b.at)) * %(per_second)s)"
)
_TAKE_STATEMENT = f"""
INSERT INTO buckets AS b VALUES (%(kind)s, %(name)s, %(capacity)s - 1, %(capacity)s - 1, statement_timestamp())
ON CONFLICT (kind, name) DO UPDATE SET at = {_AT_EXPRESSION}, rest = {_LEVEL_EXPRESSION} - 1,
level = CASE WHEN {_LEVEL_EXPRESSION} < 1 THEN {_LEVEL_EXPRESSION} ELSE {_LEVEL_EXPRESSION} - 1 END
RETURNING rest
"""
_SPEND_STATEMENT = f"""
INSERT INTO buckets AS b VALUES (%(kind)s, %(name)s, %(capacity)s - 1, %(capacity)s - 1, statement_timestamp())
ON CONFLICT (kind, name) DO UPDATE SET at = {_AT_EXPRESSION},
rest = greatest(0, {_LEVEL_EXPRESSION} - 1), level = greatest(0, {_LEVEL_EXPRESSION} - 1)
RETURNING rest
"""
_CLEANUP_STATEMENT = "DELETE FROM buckets WHERE kind = %s AND at < statement_timestamp() - make_interval(secs => %s)"


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


class PostgresBuckets:
    """`TokenBuckets` of one kind and size."""

    def __init__(self, catalog: Catalog, kind: str, size: BucketSize) -> None:
        self._catalog = catalog
        self._values = {"kind": kind, "capacity": size.capacity, "per_second": size.per_second}
        self._full_after_s = size.capacity / size.per_second if size.per_minute else 0.0
        self._cleaned_at = time.monotonic()

    def take(self, name: str) -> float:
        return self._execute(_TAKE_STATEMENT, name)

    def consume(self, name: str) -> float:
        return self._execute(_SPEND_STATEMENT, name)

    def _execute(self, statement: str, name: str) -> float:
        with self._catalog.read_connection() as connection:
            row = connection.execute(statement, {**self._values, "name": name}).fetchone()
            assert row is not None
            (rest,) = row
            if time.monotonic() - self._cleaned_at > _CLEANUP_INTERVAL_S:
                self._cleaned_at = time.monotonic()
                connection.execute(_CLEANUP_STATEMENT, (self._values["kind"], self._full_after_s))
        return float(rest)
