"""A wiki's query log: the SQLite file queries.sqlite in the wiki's directory, which is deleted with the wiki.

Any number of processes write it, each for a moment.
"""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wikiholt.errors import IndexForeign
from wikiholt.index.sqlite.connections import translate_os_errors
from wikiholt.wikis.query_log_table import SEARCHES_COLUMNS, QueryLogTable
from wikiholt.wikis.small_store import SmallStoreFile, StoreConnection, StoreTables

_LOG = logging.getLogger(__name__)

QUERY_LOG_FILE = "queries.sqlite"
QUERY_LOG_TABLES = StoreTables(
    "query log",
    0,
    2,
    (
        f"CREATE TABLE searches (id INTEGER PRIMARY KEY AUTOINCREMENT, {SEARCHES_COLUMNS})",
        "CREATE INDEX searches_at ON searches (at)",
        "CREATE TABLE owner (wiki_id text NOT NULL)",
    ),
    "No action is needed: it is replaced.",
    synchronous="NORMAL",
)
_BUSY_TIMEOUT_S = 2.0
"""Seconds to wait for a writing process; the caller retries later."""


class SqliteQueryLog(QueryLogTable):
    """The query log in a wiki's directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / QUERY_LOG_FILE

    @contextmanager
    def _open_for_reading(self) -> Iterator[StoreConnection | None]:
        with self._open().read() as connection:
            if connection is not None:
                self._require_owner(connection)
            yield connection

    @contextmanager
    def _begin_write(self, *, creates: bool = False) -> Iterator[StoreConnection | None]:
        if not (self._directory.is_dir() if creates else self._path.exists()):
            yield None
            return
        with self._open().write() as connection:
            self._require_owner(connection)
            yield connection

    def _discard(self, identity: object) -> bool:
        if self._get_identity() == identity:
            _LOG.warning("a wiki's query log was damaged, or belonged to another wiki; it was replaced by an empty one")
            with translate_os_errors():
                for name in (QUERY_LOG_FILE, f"{QUERY_LOG_FILE}-journal"):
                    (self._directory / name).unlink(missing_ok=True)
        return True

    def _get_identity(self) -> object:
        try:
            return self._path.stat().st_ino
        except OSError:
            return None

    def _open(self) -> SmallStoreFile:
        return SmallStoreFile(self._path, QUERY_LOG_TABLES, _BUSY_TIMEOUT_S, fill=self._write_owner)

    def _write_owner(self, connection: StoreConnection) -> None:
        connection.execute("INSERT INTO owner (wiki_id) VALUES (?)", (self._directory.name,))

    def _require_owner(self, connection: StoreConnection) -> None:
        if get_query_log_owner(connection) != self._directory.name:
            raise IndexForeign("the query log belongs to another wiki", hint="no action is needed: it is replaced")


def get_query_log_owner(connection: StoreConnection | sqlite3.Connection) -> str:
    """The id of the wiki that the log names as its owner; empty if it names none."""
    row = connection.execute("SELECT wiki_id FROM owner").fetchone()
    return str(row[0]) if row else ""
