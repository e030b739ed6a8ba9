"""The registry's tables, the seal over them, and how an older file becomes one of today.

The seal is the sum of a checksum of every row, so that a change costs what changes: what is written is added to it,
what is deleted is taken from it. A bit that falls over in a row, or a row that is lost, leaves a sum that is wrong.
"""

import hashlib
import sqlite3
from collections.abc import Sequence

from wikiholt.registry.sessions import Session

APPLICATION_ID = 0x57484C52
VERSION = 2

RESTORE = "`wikiholt restore --registry` puts the newest good backup in its place."

KEYED = "keyed"
"""The mark of a registry in which a key was made once."""
REBUILT = "rebuilt"
"""The mark of a registry that was started empty after one was lost: which of its wikis were private nobody knows."""

Row = Sequence[str | None]
Rows = dict[str, list[Row]]
"""Table → its rows."""

COLUMNS = {
    "wikis": ("id", "slug", "source", "settings", "created_at"),
    "hosts": ("host", "wiki_id"),
    "keys": ("id", "wiki_id", "scope", "label", "created_at", "expires_at", "digest"),
    "marks": ("name", "value"),
}
REPOSITORY = "repository-"
"""A mark of this name and a wiki's id: what tells the wiki's repository from another at the same path."""
REPOSITORY_OF_A_WIKI = "coalesce((SELECT value FROM marks WHERE name = 'repository-' || wikis.id), '')"
_WIKIS = """
CREATE TABLE wikis (
    id TEXT PRIMARY KEY NOT NULL,
    slug TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,
    settings TEXT NOT NULL,
    created_at TEXT NOT NULL
) WITHOUT ROWID;
"""
_SINCE_2 = """
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
_MODULUS = 1 << 128


class Ledger:
    """One write transaction: rows go in and out through it, and the seal follows."""

    def __init__(self, connection: Session) -> None:
        self.connection = connection
        self.deleted = False
        self._change = 0

    def insert(self, table: str, row: Row) -> None:
        marks = ", ".join("?" * len(row))
        self.connection.execute(f"INSERT INTO {table} ({', '.join(COLUMNS[table])}) VALUES ({marks})", row)  # noqa: S608
        self._change += _checksum(table, row)

    def delete(self, table: str, column: str, value: str) -> list[tuple[str, ...]]:
        """Delete the rows with that value in a column; returns what they were."""
        columns = ", ".join(COLUMNS[table])
        rows = self.connection.execute(f"SELECT {columns} FROM {table} WHERE {column} = ?", (value,)).fetchall()  # noqa: S608
        self.connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (value,))  # noqa: S608
        self.deleted = self.deleted or bool(rows)
        self._change -= sum(_checksum(table, row) for row in rows)
        return rows

    def replace(self, rows: Rows) -> None:
        """Have every table hold exactly these rows."""
        for table in COLUMNS:
            self._change -= sum(_checksum(table, row) for row in _rows(self.connection, table))
            self.connection.execute(f"DELETE FROM {table}")  # noqa: S608
            for row in rows[table]:
                self.insert(table, row)
        self.deleted = True

    def seal(self) -> None:
        """Note the new sum, before the transaction is committed."""
        (old,) = self.connection.execute("SELECT digest FROM sealed").fetchone()
        self.connection.execute("UPDATE sealed SET digest = ?", (_written(int(old, 16) + self._change),))
        self._change = 0


def create(connection: sqlite3.Connection) -> None:
    """Make an empty registry of today's form."""
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.executescript(_WIKIS + _SINCE_2)
    connection.execute("INSERT INTO sealed VALUES (1, ?)", (_written(0),))


def intact(connection: sqlite3.Connection) -> bool:
    """Whether every row of a file of today's form or an older one is as it was written, and none is missing."""
    if _version(connection) == 1:
        return bool(connection.execute("SELECT digest FROM seal").fetchone() == (_digest_of_version_1(connection),))
    return sound(connection)


def sound(connection: Session) -> bool:
    """The same of a registry of today's form, wherever it is kept."""
    return bool(connection.execute("SELECT digest FROM sealed").fetchone() == (seal_of(read(connection)),))


def read(connection: Session) -> Rows:
    """Every row of a registry of today's form."""
    return {table: list(_rows(connection, table)) for table in COLUMNS}


def seal(connection: Session) -> str:
    """The seal of a registry: the same for the same rows, and for no others."""
    (digest,) = connection.execute("SELECT digest FROM sealed").fetchone()
    return str(digest)


def marked(connection: Session, name: str) -> bool:
    """Whether a registry has the mark of this name."""
    return connection.execute("SELECT 1 FROM marks WHERE name = ?", (name,)).fetchone() is not None


def seal_of(rows: Rows) -> str:
    """The seal a registry of these rows has."""
    return _written(sum(_checksum(table, row) for table in COLUMNS for row in rows[table]))


def migrate(connection: sqlite3.Connection) -> None:
    """Bring an intact registry of version 1 to today's form in one transaction; does nothing to one that is there."""
    if _version(connection) == VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        if _version(connection) == 1:  # another process may have come first
            for statement in filter(str.strip, _SINCE_2.split(";")):
                connection.execute(statement)
            # A process of the older Wikiholt that has the file open must fail to write, not write the old seal.
            connection.execute("DROP TABLE seal")
            total = sum(_checksum("wikis", row) for row in _rows(connection, "wikis"))
            connection.execute("INSERT INTO sealed VALUES (1, ?)", (_written(total),))
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def _rows(connection: Session, table: str) -> list[tuple[str, ...]]:
    return connection.execute(f"SELECT {', '.join(COLUMNS[table])} FROM {table}").fetchall()  # noqa: S608


def _checksum(table: str, row: Row) -> int:
    text = repr((table, *row)).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=16).digest())


def _written(total: int) -> str:
    return f"{total % _MODULUS:032x}"


def _digest_of_version_1(connection: sqlite3.Connection) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for row in connection.execute("SELECT id, slug, source, settings, created_at FROM wikis ORDER BY id"):
        digest.update(repr(row).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
