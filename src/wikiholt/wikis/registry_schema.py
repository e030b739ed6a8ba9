"""The registry's tables, the checksum over their rows, and the protocol of the databases that store them."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wikiholt.wikis.registry_recovery import LeftoverData
    from wikiholt.wikis.sign_ins import SignInDatabase


class ResultRows(Protocol):
    """The result of a statement."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class RegistryConnection(Protocol):
    """Executes statements with `?` placeholders."""

    def execute(self, statement: str, values: Sequence[str | None] = (), /) -> ResultRows: ...


class RegistryDatabase(Protocol):
    """The database of a registry. Safe to use from many threads and processes; raises errors of `wikiholt.errors`."""

    is_shared: bool
    """Whether other machines use it too, each with its own backups."""

    remains: "LeftoverData | None"
    """Detects data of a lost registry; with None, an empty registry counts as new."""

    def read_connection(self) -> AbstractContextManager[RegistryConnection | None]:
        """A connection for reading; None if there is no registry yet. Raises IndexCorrupt if the checksum is wrong."""
        ...

    def write_transaction(self) -> AbstractContextManager["RegistryTransaction"]:
        """One exclusive write transaction; updates the checksum and commits unless the block raises."""
        ...

    def write_copy(self, to: Path) -> str | None:
        """Write a consistent copy to an SQLite file and return its checksum; None if there is no registry yet."""
        ...

    def replace_contents(self, rows: "RegistryRows") -> str | None:
        """Replace a damaged or missing registry by these rows; returns the name under which the old one is kept."""
        ...

    def open_sign_ins(self) -> "SignInDatabase":
        """The sign-ins beside the registry, which have neither checksum nor backups."""
        ...

    def close(self) -> None:
        """Close the database; the next use opens it again."""
        ...


# Tables and checksum. The checksum is the sum of a hash of every row, so that updating it costs as much as the change:
# inserted rows are added, deleted rows subtracted. A flipped bit or a lost row makes the sum wrong.


APPLICATION_ID = 0x57484C52
SCHEMA_VERSION = 2

RESTORE_HINT = "`wikiholt restore --registry` puts the newest good backup in its place."

KEYED_MARK = "keyed"
"""Set once the first key is created."""
REBUILT_MARK = "rebuilt"
"""Set if the registry was started empty after one was lost: it is unknown which of its wikis were private."""

RegistryRow = Sequence[str | None]
RegistryRows = dict[str, list[RegistryRow]]
"""Rows by table."""

TABLE_COLUMNS = {
    "wikis": ("id", "slug", "source", "settings", "created_at"),
    "hosts": ("host", "wiki_id"),
    "keys": ("id", "wiki_id", "scope", "label", "created_at", "expires_at", "digest"),
    "marks": ("name", "value"),
}
PURGE_MARK_PREFIX = "struck-"
"""Prefix of a mark with a wiki's id: the wiki was removed and may still be in backups."""
REPOSITORY_MARK = "repository-"
"""Prefix of a mark with a wiki's id. Its value identifies the wiki's repository."""
OAUTH_MARK_PREFIX = "oauth-"
"""Prefix of marks of the authorization server for agents."""
REPOSITORY_COLUMN = "coalesce((SELECT value FROM marks WHERE name = 'repository-' || wikis.id), '')"
_CREATE_TABLES = """
CREATE TABLE wikis (
    id TEXT PRIMARY KEY NOT NULL,
    slug TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    settings TEXT NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE hosts (host TEXT PRIMARY KEY NOT NULL, wiki_id TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX hosts_of_a_wiki ON hosts (wiki_id);
CREATE TABLE keys (
    id TEXT PRIMARY KEY NOT NULL,
    wiki_id TEXT,
    scope TEXT NOT NULL,
    label TEXT NOT NULL,
    created_at TEXT NOT NULL,
    expires_at TEXT,
    digest TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX keys_of_a_wiki ON keys (wiki_id);
CREATE TABLE marks (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE sealed (one INTEGER PRIMARY KEY CHECK (one = 1), digest TEXT NOT NULL);
"""
_CHECKSUM_MODULUS = 1 << 128


class RegistryTransaction:
    """One write transaction that keeps the checksum up to date."""

    def __init__(self, connection: RegistryConnection) -> None:
        self.connection = connection
        self.has_deletions = False
        self._checksum_delta = 0

    def insert(self, table: str, row: RegistryRow) -> None:
        placeholders = ", ".join("?" * len(row))
        columns = ", ".join(TABLE_COLUMNS[table])
        self.connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({placeholders})", row)  # noqa: S608
        self._checksum_delta += _hash_row(table, row)

    def delete(self, table: str, column: str, value: str) -> list[tuple[str, ...]]:
        """Delete the rows with that value in a column and return them."""
        columns = ", ".join(TABLE_COLUMNS[table])
        rows = self.connection.execute(f"SELECT {columns} FROM {table} WHERE {column} = ?", (value,)).fetchall()  # noqa: S608
        self.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (value,))  # noqa: S608
        self.has_deletions = self.has_deletions or bool(rows)
        self._checksum_delta -= sum(_hash_row(table, row) for row in rows)
        return rows

    def replace_all(self, rows: RegistryRows) -> None:
        """Replace the rows of every table."""
        for table in TABLE_COLUMNS:
            self._checksum_delta -= sum(_hash_row(table, row) for row in _read_table(self.connection, table))
            self.connection.execute(f"DELETE FROM {table}")  # noqa: S608
            for row in rows[table]:
                self.insert(table, row)
        self.has_deletions = True

    def write_checksum(self) -> None:
        """Store the new checksum, before the commit."""
        (old,) = self.connection.execute("SELECT digest FROM sealed").fetchone()
        self.connection.execute(
            "UPDATE sealed SET digest = ?", (_format_checksum(int(old, 16) + self._checksum_delta),)
        )
        self._checksum_delta = 0


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables of an empty registry."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.executescript(_CREATE_TABLES)
    connection.execute("INSERT INTO sealed (one, digest) VALUES (1, ?)", (_format_checksum(0),))


def is_checksum_valid(connection: RegistryConnection) -> bool:
    """Whether the rows match the stored checksum."""
    return bool(
        connection.execute("SELECT digest FROM sealed").fetchone() == (compute_checksum(read_rows(connection)),)
    )


def read_rows(connection: RegistryConnection) -> RegistryRows:
    """Every row of the registry."""
    return {table: list(_read_table(connection, table)) for table in TABLE_COLUMNS}


def get_value(table: str, row: RegistryRow, column: str) -> str | None:
    """The value of a column of a row, by name."""
    return row[TABLE_COLUMNS[table].index(column)]


def read_checksum(connection: RegistryConnection) -> str:
    """The stored checksum: equal for equal rows only."""
    (digest,) = connection.execute("SELECT digest FROM sealed").fetchone()
    return str(digest)


def has_mark(connection: RegistryConnection, name: str) -> bool:
    """Whether the registry has a mark of this name."""
    return connection.execute("SELECT 1 FROM marks WHERE name = ?", (name,)).fetchone() is not None


def compute_checksum(rows: RegistryRows) -> str:
    """The checksum of a registry with these rows."""
    return _format_checksum(sum(_hash_row(table, row) for table in TABLE_COLUMNS for row in rows[table]))


def _read_table(connection: RegistryConnection, table: str) -> list[tuple[str, ...]]:
    return connection.execute(f"SELECT {', '.join(TABLE_COLUMNS[table])} FROM {table}").fetchall()  # noqa: S608


def _hash_row(table: str, row: RegistryRow) -> int:
    text = repr((table, *row)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())


def _format_checksum(total: int) -> str:
    return f"{total % _CHECKSUM_MODULUS:032x}"
