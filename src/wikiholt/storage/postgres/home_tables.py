"""What all nodes share in the home database: the registry, the sign-ins, and the token buckets of rate limits.

The registry has the same tables and checksum as the registry file. Writers of all nodes are serialized; readers never
wait. Readers see the last committed state, so a key that one node revokes is rejected by all others at once. Every
write notifies the nodes.

A token bucket is one row, and takes one statement per request. All times are the database's. The table is unlogged, so
every bucket is full after a crash of the server. If the home database is unreachable, the operations raise
DatabaseUnavailable, and the request is rejected.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psycopg
from psycopg import sql

from wikiholt.errors import IndexCorrupt, InvalidSetting
from wikiholt.storage.postgres.assignments import REGISTRY_CHANGED, notify_nodes
from wikiholt.storage.postgres.catalog import Catalog, TableSet
from wikiholt.storage.postgres.pool import Connection
from wikiholt.wikis import registry_schema
from wikiholt.wikis.rate_limit import BucketSize
from wikiholt.wikis.registry_file import write_file
from wikiholt.wikis.registry_recovery import (
    EMPTY_CHECKSUM,
    LeftoverData,
    make_lost_registry_error,
    make_outdated_registry_error,
)
from wikiholt.wikis.registry_schema import RESTORE_HINT, ResultRows

# Slugs and host names sort by their bytes, as in the registry file.
REGISTRY_TABLES = TableSet(
    "registry",
    (
        'CREATE TABLE wikis (id text PRIMARY KEY, slug text COLLATE "C" NOT NULL UNIQUE, source text NOT NULL,'
        " settings text NOT NULL, created_at text NOT NULL)",
        "CREATE TABLE hosts (host text PRIMARY KEY, wiki_id text NOT NULL)",
        "CREATE INDEX hosts_of_a_wiki ON hosts (wiki_id)",
        'CREATE TABLE keys (id text COLLATE "C" PRIMARY KEY, wiki_id text, scope text NOT NULL, label text NOT NULL,'
        ' created_at text COLLATE "C" NOT NULL, expires_at text, digest text NOT NULL)',
        "CREATE INDEX keys_of_a_wiki ON keys (wiki_id)",
        "CREATE TABLE marks (name text PRIMARY KEY, value text NOT NULL)",
        "CREATE TABLE sealed (one int4 PRIMARY KEY CHECK (one = 1), digest text NOT NULL)",
        f"INSERT INTO sealed VALUES (1, '{EMPTY_CHECKSUM}')",
        "CREATE TABLE sign_ins (digest text PRIMARY KEY, client text NOT NULL, person text NOT NULL,"
        ' created_at text COLLATE "C" NOT NULL, expires_at text COLLATE "C" NOT NULL)',
        "CREATE INDEX sign_ins_of_a_client ON sign_ins (client)",
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


class PostgresRegistry:
    """`RegistryDatabase` in the home database. Each process verifies the checksum before its first access."""

    is_shared = True

    def __init__(self, catalog: Catalog, timeout_s: float = 10.0, remains: LeftoverData | None = None) -> None:
        self._catalog = catalog
        self.remains = remains
        self._timeout_s = timeout_s
        self._verified_pid: int | None = None

    @contextmanager
    def read_connection(self) -> Iterator["_PostgresRegistryConnection"]:
        self._verify()
        with self._catalog.read_connection() as connection:
            yield _PostgresRegistryConnection(connection)

    @contextmanager
    def write_transaction(self) -> Iterator[registry_schema.RegistryTransaction]:
        self._verify()
        with self._lock_registry() as connection, _translate_text_errors():
            transaction = registry_schema.RegistryTransaction(_PostgresRegistryConnection(connection))
            yield transaction
            transaction.write_checksum()
            notify_nodes(connection, REGISTRY_CHANGED)

    def write_copy(self, to: Path) -> str | None:
        self._verify()
        with self._catalog.read_snapshot() as connection:
            registry = _PostgresRegistryConnection(connection)
            rows, checksum = registry_schema.read_rows(registry), registry_schema.read_checksum(registry)
        write_file(to, rows)
        return checksum

    def replace_contents(self, rows: registry_schema.RegistryRows) -> str | None:
        name = f"broken_{datetime.now(UTC):%Y%m%dt%H%M%S%fz}"
        with self._lock_registry() as connection:
            quarantine = sql.Identifier(name)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(quarantine))
            for table in (*registry_schema.TABLE_COLUMNS, "sealed"):
                copy = sql.SQL("CREATE TABLE {}.{} AS TABLE {}").format(quarantine, *[sql.Identifier(table)] * 2)
                connection.execute(copy)
            transaction = registry_schema.RegistryTransaction(_PostgresRegistryConnection(connection))
            transaction.replace_all(rows)
            connection.execute("DELETE FROM sealed")
            connection.execute("INSERT INTO sealed VALUES (1, %s)", (registry_schema.compute_checksum(rows),))
            notify_nodes(connection, REGISTRY_CHANGED)
        return name

    def open_sign_ins(self) -> "PostgresSignIns":
        return PostgresSignIns(self._catalog)

    def close(self) -> None:
        self._verified_pid = None

    @contextmanager
    def _lock_registry(self) -> Iterator[Connection]:
        """A write transaction that excludes writers of all nodes. Raises Busy."""
        with self._catalog.write_transaction() as connection:
            # Both end with the transaction.
            connection.execute(sql.SQL("SET LOCAL lock_timeout TO {}").format(f"{self._timeout_s:.3f}s"))
            connection.execute("LOCK TABLE sealed IN EXCLUSIVE MODE")
            yield connection

    def _verify(self) -> None:
        """Verify the registry once per process. Raises IndexCorrupt if it is damaged or was lost."""
        if self._verified_pid == os.getpid():
            return
        with self._catalog.read_snapshot() as connection:
            registry = _PostgresRegistryConnection(connection)
            if not registry_schema.is_checksum_valid(registry):
                raise IndexCorrupt(
                    "The registry is damaged: its rows are not those that were written.", hint=RESTORE_HINT
                )
            is_empty = registry_schema.read_checksum(registry) == EMPTY_CHECKSUM
            has_keys = registry_schema.has_mark(registry, registry_schema.KEYED_MARK)
        if self.remains is not None and not has_keys:
            if is_empty and (leftovers := self.remains.find()):
                raise make_lost_registry_error("The registry in PostgreSQL", leftovers)
            if self.remains.had_keys():
                raise make_outdated_registry_error("The registry in PostgreSQL")
        self._verified_pid = os.getpid()


class PostgresSignIns:
    """`SignInDatabase` in the home database, so that all nodes see the same sign-ins."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @contextmanager
    def read_connection(self) -> Iterator["_PostgresRegistryConnection"]:
        with self._catalog.read_connection() as connection:
            yield _PostgresRegistryConnection(connection)

    @contextmanager
    def write_transaction(self) -> Iterator["_PostgresRegistryConnection"]:
        with self._catalog.write_transaction() as connection, _translate_text_errors():
            yield _PostgresRegistryConnection(connection)


def describe_leftover_schemas(catalog: Catalog) -> str:
    """Describe the schemas of wikis in the home database; empty if there are none."""
    with catalog.read_connection() as connection:
        row = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' LIMIT 1").fetchone()
        return "schemas of wikis" if row else ""


class _PostgresRegistryConnection:
    """Adapts a connection to the registry's SQLite-style statements."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[str | None] = (), /) -> ResultRows:
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
        raise InvalidSetting(
            "a name or setting contains invalid text", hint="remove NUL characters and unpaired surrogates"
        ) from error


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
