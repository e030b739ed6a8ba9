"""The registry in PostgreSQL: the same tables, ledger and seal as in its file, in the home's schema.

    TABLES                                     the home's part that makes them
    PostgresRegistry(home, timeout=10.0, remains=None)    -> registry.RegistryDatabase
    name_schemas(home)                         says whether schemas of wikis are in the home's database

Writers of all nodes go one after another; readers wait for none. What is read is what was last committed: a key that
one node revokes is refused by the others from then on. Every write tells the nodes (`shifts.py`).
"""

import os
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
from wikiholt.wikis.registry_file import write_file
from wikiholt.wikis.registry_recovery import (
    EMPTY_CHECKSUM,
    LeftoverData,
    make_lost_registry_error,
    make_outdated_registry_error,
)
from wikiholt.wikis.registry_schema import RESTORE_HINT, ResultRows

# Slugs and host names sort by their bytes, as they do in the file.
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
        f"INSERT INTO sealed VALUES (1, '{registry_schema.compute_checksum({table: [] for table in registry_schema.TABLE_COLUMNS})}')",
    ),
)


class PostgresRegistry:
    """Bound to a home. Its rows are verified once by every process, when it first reads them."""

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
            ledger = registry_schema.RegistryTransaction(_PostgresRegistryConnection(connection))
            yield ledger
            ledger.write_checksum()
            notify_nodes(connection, REGISTRY_CHANGED)

    def write_copy(self, to: Path) -> str | None:
        self._verify()
        with self._catalog.read_snapshot() as connection:
            session = _PostgresRegistryConnection(connection)
            rows, seal = registry_schema.read_rows(session), registry_schema.read_checksum(session)
        write_file(to, rows)
        return seal

    def replace_contents(self, rows: registry_schema.RegistryRows) -> str | None:
        name = f"broken_{datetime.now(UTC):%Y%m%dt%H%M%S%fz}"
        with self._lock_registry() as connection:
            aside = sql.Identifier(name)
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(aside))
            for table in (*registry_schema.TABLE_COLUMNS, "sealed"):
                kept = sql.SQL("CREATE TABLE {}.{} AS TABLE {}").format(aside, *[sql.Identifier(table)] * 2)
                connection.execute(kept)
            ledger = registry_schema.RegistryTransaction(_PostgresRegistryConnection(connection))
            ledger.replace_all(rows)
            connection.execute("DELETE FROM sealed")
            connection.execute("INSERT INTO sealed VALUES (1, %s)", (registry_schema.compute_checksum(rows),))
            notify_nodes(connection, REGISTRY_CHANGED)
        return name

    def close(self) -> None:
        self._verified_pid = None

    @contextmanager
    def _lock_registry(self) -> Iterator[Connection]:
        """One write transaction, while no other node writes the registry; raises Busy."""
        with self._catalog.write_transaction() as connection:
            # Both are gone with the transaction.
            connection.execute(sql.SQL("SET LOCAL lock_timeout TO {}").format(f"{self._timeout_s:.3f}s"))
            connection.execute("LOCK TABLE sealed IN EXCLUSIVE MODE")
            yield connection

    def _verify(self) -> None:
        if self._verified_pid == os.getpid():
            return
        with self._catalog.read_snapshot() as connection:
            session = _PostgresRegistryConnection(connection)
            if not registry_schema.is_checksum_valid(session):
                raise IndexCorrupt(
                    "The registry is damaged: its rows are not those that were written.", hint=RESTORE_HINT
                )
            blank, keyed = (
                registry_schema.read_checksum(session) == EMPTY_CHECKSUM,
                registry_schema.has_mark(session, registry_schema.KEYED_MARK),
            )
        if self.remains is not None and not keyed:
            if blank and (found := self.remains.find()):
                raise make_lost_registry_error("The registry in PostgreSQL", found)
            if self.remains.had_keys():
                raise make_outdated_registry_error("The registry in PostgreSQL")
        self._verified_pid = os.getpid()


def list_schema_names(home: Catalog) -> str:
    """What remains of wikis in the home's database, in a few words; empty if nothing does."""
    with home.read_connection() as connection:
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname ~ '^w_[a-z0-9]{8,}$' LIMIT 1").fetchone()
        return "schemas of wikis" if found else ""


class _PostgresRegistryConnection:
    """Takes the registry's statements as SQLite would."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def execute(self, statement: str, values: Sequence[str | None] = (), /) -> ResultRows:
        return self._connection.execute(_convert_placeholders(statement), values)


@cache
def _convert_placeholders(statement: str) -> sql.SQL:
    """The statement with PostgreSQL's marks for values; all statements are the registry's own, and few."""
    return sql.SQL(statement.replace("?", "%s"))


@contextmanager
def _translate_text_errors() -> Iterator[None]:
    try:
        yield
    except (psycopg.DataError, UnicodeEncodeError) as error:
        raise InvalidSetting(
            "a name or setting holds what is no text", hint="leave out NUL and halves of characters"
        ) from error
