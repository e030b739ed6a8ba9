"""A wiki's query log: the SQLite file queries.sqlite in the wiki's directory, which is deleted with the wiki.

Any number of processes write it, each for a moment. A damaged file is deleted, not quarantined: a quarantined file
would outlive the retention limit.
"""

import json
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

from wikiholt.domain.search import QueryRecord, QueryRecords, QueryRetention
from wikiholt.errors import IndexCorrupt, IndexForeign, IndexTooNew
from wikiholt.storage.sqlite.errors import translate_errors, translate_os_errors

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)

QUERY_LOG_FILE = "queries.sqlite"
_SCHEMA_VERSION = 2
QUERY_COLUMNS = (
    "at, interface, query, mode, filtered, hits, nothing_relevant, degraded, score, ms, did_you_mean, pages, lost"
)
_CREATE_TABLES = """
CREATE TABLE IF NOT EXISTS searches (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL, interface TEXT NOT NULL, query TEXT NOT NULL,
    mode TEXT NOT NULL, filtered INTEGER NOT NULL, hits INTEGER NOT NULL, nothing_relevant INTEGER NOT NULL,
    degraded INTEGER NOT NULL, score REAL NOT NULL, ms REAL NOT NULL, did_you_mean TEXT NOT NULL,
    pages TEXT NOT NULL, lost INTEGER NOT NULL) STRICT;
CREATE INDEX IF NOT EXISTS searches_at ON searches (at);
CREATE TABLE IF NOT EXISTS damage (at REAL NOT NULL) STRICT;
CREATE TABLE IF NOT EXISTS owner (wiki_id TEXT NOT NULL) STRICT;
"""
_PRAGMAS = (
    "PRAGMA auto_vacuum = FULL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA secure_delete = ON",  # deleted queries must not be readable in the file
)
_INSERT = f"INSERT INTO searches ({QUERY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT_SINCE = f"SELECT {QUERY_COLUMNS} FROM searches WHERE at >= ? ORDER BY at, id"
_BUSY_TIMEOUT_S = 2.0
"""Seconds to wait for a writing process; the caller retries later."""


class SqliteQueryLog:
    """A `QueryLog` in one file. The file is opened for each use: there may be thousands of wikis, and forks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._file = directory / QUERY_LOG_FILE

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        rows = [to_query_row(record) for record in records]

        def add(db: sqlite3.Connection) -> None:
            db.executemany(_INSERT, rows)
            _delete_expired(db, retention)

        if not self._directory.is_dir():
            return
        self._create_file()
        self._run_transaction(add)

    def read(self, since: float) -> QueryRecords | None:
        def select(db: sqlite3.Connection) -> QueryRecords:
            rows = db.execute(_SELECT_SINCE, (since,)).fetchall()
            (damaged_at,) = db.execute("SELECT max(at) FROM damage").fetchone()
            return QueryRecords(tuple(map(from_query_row, rows)), damaged_at)

        return self._run_with_recovery(select) if self._file.exists() else None

    def trim(self, retention: QueryRetention) -> None:
        if self._file.exists():
            self._run_transaction(lambda db: _delete_expired(db, retention))

    def clear(self) -> int:
        if not self._file.exists():
            return 0
        count = 0

        def delete_all(db: sqlite3.Connection) -> None:
            nonlocal count
            count = db.execute("DELETE FROM searches").rowcount
            db.execute("DELETE FROM damage")

        self._run_transaction(delete_all)
        return count

    def _run_transaction(self, change: Callable[[sqlite3.Connection], None]) -> None:
        """Run one change in one transaction."""

        def run(db: sqlite3.Connection) -> None:
            db.execute("BEGIN IMMEDIATE")
            change(db)
            db.execute("COMMIT")

        self._run_with_recovery(run)

    def _run_with_recovery(self, action: Callable[[sqlite3.Connection], _T]) -> _T:
        """Run the action; if the file is damaged, run it on a new empty file instead."""
        inode = self._get_inode()
        try:
            with self._open() as db:
                return action(db)
        except IndexCorrupt:
            self._replace_damaged(inode)
        with self._open() as db:
            return action(db)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with translate_errors():
            uri = f"file:{quote(str(self._file))}?mode=rw"
            db = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_BUSY_TIMEOUT_S)
            try:
                # One connection, one file: no statement can reach another wiki.
                db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
                for setting in _PRAGMAS:
                    db.execute(setting)
                _create_tables(db, self._directory.name)
                yield db
            finally:
                db.close()

    def _create_file(self) -> None:
        """Create the file if needed, readable by its owner only.

        An existing file is not opened: closing it would release the locks of other connections of this process.
        """
        with translate_os_errors(), suppress(FileExistsError):
            os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def _get_inode(self) -> int:
        try:
            return self._file.stat().st_ino
        except OSError:
            return 0

    def _replace_damaged(self, inode: int) -> None:
        """Replace a damaged file, unless another process already has, and record the damage in the new one."""
        if self._get_inode() != inode:
            return
        _LOG.warning("a wiki's query log was damaged, or belonged to another wiki; it was replaced by an empty one")
        with translate_os_errors():
            for name in (QUERY_LOG_FILE, f"{QUERY_LOG_FILE}-journal"):
                (self._directory / name).unlink(missing_ok=True)
        self._create_file()
        with self._open() as db:
            db.execute("INSERT INTO damage (at) VALUES (?)", (time.time(),))


def to_query_row(record: QueryRecord) -> tuple[str | float, ...]:
    """Convert a record to the columns of either store."""
    return (
        *(record.at, record.interface, record.query, record.mode, int(record.filtered), record.hits),
        *(int(record.nothing_relevant), int(record.degraded), record.score, record.ms),
        *(record.did_you_mean, json.dumps(record.pages), record.lost),
    )


def from_query_row(columns: tuple[Any, ...]) -> QueryRecord:
    """Convert the columns of either store to a record. Raises IndexCorrupt if `pages` cannot be decoded."""
    values = dict(zip(QUERY_COLUMNS.split(", "), columns, strict=True))
    try:
        pages = tuple(json.loads(values["pages"]))
    except (ValueError, TypeError) as error:
        raise IndexCorrupt("the query log is damaged", hint="clear it: `wikiholt report SLUG --clear`") from error
    flags = {name: bool(values[name]) for name in ("filtered", "nothing_relevant", "degraded")}
    return QueryRecord(**values | flags | {"pages": pages})


def get_query_log_owner(db: sqlite3.Connection) -> str:
    """The id of the wiki that the log names as its owner; empty if it names none."""
    row = db.execute("SELECT wiki_id FROM owner").fetchone()
    return str(row[0]) if row else ""


def _create_tables(db: sqlite3.Connection, wiki_id: str) -> None:
    """Create the tables of a new log. Raises IndexForeign for a log of another wiki."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    if version > _SCHEMA_VERSION:
        raise IndexTooNew("the query log was written by a newer Wikiholt", hint="upgrade Wikiholt")
    if version == 0:
        db.execute("BEGIN IMMEDIATE")
        for statement in filter(str.strip, _CREATE_TABLES.split(";")):
            db.execute(statement)
        db.execute("INSERT INTO owner (wiki_id) SELECT ? WHERE NOT EXISTS (SELECT * FROM owner)", (wiki_id,))
        db.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        db.execute("COMMIT")
    if get_query_log_owner(db) != wiki_id:
        raise IndexForeign("the query log belongs to another wiki", hint="no action is needed: it is replaced")


def _delete_expired(db: sqlite3.Connection, retention: QueryRetention) -> None:
    db.execute("DELETE FROM searches WHERE at < ?", (time.time() - retention.max_days * 86_400,))
    db.execute("DELETE FROM searches WHERE id <= (SELECT max(id) FROM searches) - ?", (retention.max_records,))
