"""What the registry asks of the database it is kept in: its own SQLite file, or PostgreSQL beside the indexes."""

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from wikiholt.wikis.registry_files import LeftoverData


class ResultRows(Protocol):
    """Rows that a statement gave."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class RegistryConnection(Protocol):
    """Takes a statement with `?` where values go."""

    def execute(self, statement: str, values: Sequence[str | None] = (), /) -> ResultRows: ...


class RegistryDatabase(Protocol):
    """Where a registry is kept. Safe to use from many threads and processes; faults are of wikiholt.errors."""

    is_shared: bool
    """Whether other machines use it too, each with a shelf of backups of its own."""

    remains: "LeftoverData | None"
    """What an earlier registry has left; with None an empty registry is taken for a new one."""

    def read_connection(self) -> AbstractContextManager[RegistryConnection | None]:
        """For reading; None while there is no registry yet. Raises IndexCorrupt where rows are not as written."""
        ...

    def write_transaction(self) -> AbstractContextManager["RegistryTransaction"]:
        """One write transaction, alone, which is sealed and committed unless the block raises."""
        ...

    def write_copy(self, to: Path) -> str | None:
        """Write the registry of one moment to an SQLite file, and return its seal; None while there is none."""
        ...

    def replace_contents(self, rows: "RegistryRows") -> str | None:
        """Put these rows in the place of a registry that is damaged or gone; the name under which that lies now."""
        ...

    def close(self) -> None:
        """Let go of it; the next use opens it again."""
        ...


# The registry's tables, the seal over them, and how an older file becomes one of today. The seal is the sum of a
# checksum of every row, so that a change costs what changes: what is written is added to it, what is deleted is taken
# from it. A bit that falls over in a row, or a row that is lost, leaves a sum that is wrong.


APPLICATION_ID = 0x57484C52
SCHEMA_VERSION = 2

RESTORE_HINT = "`wikiholt restore --registry` puts the newest good backup in its place."

KEYED_MARK = "keyed"
"""The mark of a registry in which a key was made once."""
REBUILT_MARK = "rebuilt"
"""The mark of a registry that was started empty after one was lost: which of its wikis were private nobody knows."""

RegistryRow = Sequence[str | None]
RegistryRows = dict[str, list[RegistryRow]]
"""Table → its rows."""

TABLE_COLUMNS = {
    "wikis": ("id", "slug", "source", "settings", "created_at"),
    "hosts": ("host", "wiki_id"),
    "keys": ("id", "wiki_id", "scope", "label", "created_at", "expires_at", "digest"),
    "marks": ("name", "value"),
}
REPOSITORY_MARK = "repository-"
"""A mark of this name and a wiki's id: what tells the wiki's repository from another at the same path."""
REPOSITORY_COLUMN = "coalesce((SELECT value FROM marks WHERE name = 'repository-' || wikis.id), '')"
_WIKIS_TABLE = """
CREATE TABLE wikis (
    id TEXT PRIMARY KEY NOT NULL,
    slug TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    settings TEXT NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID;
"""
_VERSION_2_TABLES = """
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
    """One write transaction: rows go in and out through it, and the seal follows."""

    def __init__(self, connection: RegistryConnection) -> None:
        self.connection = connection
        self.has_deletions = False
        self._checksum_delta = 0

    def insert(self, table: str, row: RegistryRow) -> None:
        marks = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT INTO {table} ({', '.join(TABLE_COLUMNS[table])}) VALUES ({marks})", row)  # noqa: S608
        self._checksum_delta += _hash_row(table, row)

    def delete(self, table: str, column: str, value: str) -> list[tuple[str, ...]]:
        """Delete the rows with that value in a column; returns what they were."""
        columns = ", ".join(TABLE_COLUMNS[table])
        rows = self.connection.execute(f"SELECT {columns} FROM {table} WHERE {column} = ?", (value,)).fetchall()  # noqa: S608
        self.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (value,))  # noqa: S608
        self.has_deletions = self.has_deletions or bool(rows)
        self._checksum_delta -= sum(_hash_row(table, row) for row in rows)
        return rows

    def replace_all(self, rows: RegistryRows) -> None:
        """Have every table hold exactly these rows."""
        for table in TABLE_COLUMNS:
            self._checksum_delta -= sum(_hash_row(table, row) for row in _read_table(self.connection, table))
            self.connection.execute(f"DELETE FROM {table}")  # noqa: S608
            for row in rows[table]:
                self.insert(table, row)
        self.has_deletions = True

    def write_checksum(self) -> None:
        """Note the new sum, before the transaction is committed."""
        (old,) = self.connection.execute("SELECT digest FROM sealed").fetchone()
        self.connection.execute(
            "UPDATE sealed SET digest = ?", (_format_checksum(int(old, 16) + self._checksum_delta),)
        )
        self._checksum_delta = 0


def create_tables(connection: sqlite3.Connection) -> None:
    """Make an empty registry of today's form."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    connection.executescript(_WIKIS_TABLE + _VERSION_2_TABLES)
    connection.execute("INSERT INTO sealed VALUES (1, ?)", (_format_checksum(0),))


def is_intact(connection: sqlite3.Connection) -> bool:
    """Whether every row of a file of today's form or an older one is as it was written, and none is missing."""
    if _read_version(connection) == 1:
        return bool(connection.execute("SELECT digest FROM seal").fetchone() == (_hash_version_1(connection),))
    return is_checksum_valid(connection)


def is_checksum_valid(connection: RegistryConnection) -> bool:
    """The same of a registry of today's form, wherever it is kept."""
    return bool(
        connection.execute("SELECT digest FROM sealed").fetchone() == (compute_checksum(read_rows(connection)),)
    )


def read_rows(connection: RegistryConnection) -> RegistryRows:
    """Every row of a registry of today's form."""
    return {table: list(_read_table(connection, table)) for table in TABLE_COLUMNS}


def read_checksum(connection: RegistryConnection) -> str:
    """The seal of a registry: the same for the same rows, and for no others."""
    (digest,) = connection.execute("SELECT digest FROM sealed").fetchone()
    return str(digest)


def has_mark(connection: RegistryConnection, name: str) -> bool:
    """Whether a registry has the mark of this name."""
    return connection.execute("SELECT 1 FROM marks WHERE name = ?", (name,)).fetchone() is not None


def compute_checksum(rows: RegistryRows) -> str:
    """The seal a registry of these rows has."""
    return _format_checksum(sum(_hash_row(table, row) for table in TABLE_COLUMNS for row in rows[table]))


def migrate_schema(connection: sqlite3.Connection) -> None:
    """Bring an intact registry of version 1 to today's form in one transaction; does nothing to one that is there."""
    if _read_version(connection) == SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _read_version(connection) == 1:  # another process may have come first
            for statement in filter(str.strip, _VERSION_2_TABLES.split(";")):
                connection.execute(statement)
            # A process of the older Wikiholt that has the file open must fail to write, not write the old seal.
            connection.execute("DROP TABLE seal")
            total = sum(_hash_row("wikis", row) for row in _read_table(connection, "wikis"))
            connection.execute("INSERT INTO sealed VALUES (1, ?)", (_format_checksum(total),))
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _read_version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _read_table(connection: RegistryConnection, table: str) -> list[tuple[str, ...]]:
    return connection.execute(f"SELECT {', '.join(TABLE_COLUMNS[table])} FROM {table}").fetchall()  # noqa: S608


def _hash_row(table: str, row: RegistryRow) -> int:
    text = repr((table, *row)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())


def _format_checksum(total: int) -> str:
    return f"{total % _CHECKSUM_MODULUS:032x}"


def _hash_version_1(connection: sqlite3.Connection) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for row in connection.execute("SELECT id, slug, source, settings, created_at FROM wikis ORDER BY id"):
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
