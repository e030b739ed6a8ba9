"""Connections to index files: how a file is opened, the pool of an index, and SQLite's errors in the error tree.

Readers take any idle connection; a few stay open, and in all pools of the process so few that thousands of wikis need
few open files. In WAL mode readers never wait for the writer.
"""

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, local
from urllib.parse import quote

from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, IndexUnavailable, StorageError
from wikiholt.index.rows import Row, describe_error, make_corrupt_error
from wikiholt.regular_files import is_irregular

_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_STORAGE_ERROR_CODES = {
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS),
}
_TRANSIENT_CODES = {
    *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG),
    *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE),
}
_LIMIT_MESSAGES = ("too large", "too many")
_PROGRAMMING_ERRORS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.NotSupportedError)
# Without mmap_size: reading a mapped file that damage has truncated would end the process (SIGBUS).
# A small cache: the system caches the file for all connections and processes.
_PRAGMAS = ("journal_mode = WAL", "synchronous = FULL", "cache_size = -4000")
_READER_PRAGMAS = ("cache_size = -4000", "schema_version")
"""SQLite opens the file on the first read, which is that of the last setting."""
WRITER_PRAGMA = "cache_size = -16000"
"""For a transaction that writes: changed blocks stay in memory until it ends."""
FILE_SUFFIXES = ("", "-wal", "-shm")
"""Suffixes of the files of an SQLite database."""
_READ_ONLY_CODES = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
_SHARED_MEMORY_CODES = {sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP}
"""The shared-memory file cannot be created: the disk is full."""
_MAX_IDLE_CONNECTIONS = 3
_MAX_IDLE_CONNECTIONS_IN_PROCESS = 32
"""A connection has up to three open files. Opening another takes less than a millisecond."""
_BATCH_KEYS = 400
"""Keys per statement; a statement may compare each key with two columns."""


# ── errors ──


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate sqlite3 errors to IndexUnavailable, IndexCorrupt, StorageError or Busy."""
    try:
        yield
    except _PROGRAMMING_ERRORS:
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _BUSY_CODES:
            raise Busy("the index is being written by another process", hint="try again in a moment") from error
        if code in _STORAGE_ERROR_CODES:
            raise StorageError(
                f"the index cannot be written ({error})",
                hint="check free disk space and the data directory's permissions",
            ) from error
        if code in _TRANSIENT_CODES or any(words in str(error) for words in _LIMIT_MESSAGES):
            raise IndexUnavailable(
                f"the index could not run this statement ({describe_error(error)})", hint="request less at once"
            ) from error
        raise make_corrupt_error(error) from error
    except UnicodeDecodeError as error:  # an SQLite message that quotes the damaged text
        raise make_corrupt_error(error) from error


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """Translate OSError to StorageError."""
    try:
        yield
    except OSError as error:
        raise make_storage_error(error) from error


def make_storage_error(error: OSError) -> StorageError:
    return StorageError(
        f"the data directory cannot be written ({error.strerror or error})",
        hint="check free disk space and the directory's permissions",
    )


# ── opening ──


class ImmutableConnection(sqlite3.Connection):
    """A connection without locks to a file that had no writer when it was opened.

    It does not notice later writers, so it must not be kept.
    """


def open_connection(file: Path, *, create: bool = False) -> sqlite3.Connection:
    """Open an index file, or with `create` a new one. Transactions are started explicitly.

    If the directory is read-only or the disk is full, opens read-only where that is safe.
    """
    _require_regular_files(file)
    with translate_errors():
        try:
            return _open_database(file, "mode=rwc" if create else "mode=rw", _PRAGMAS)
        except sqlite3.OperationalError as error:
            if not file.exists():
                raise IndexMissing("this wiki has no index yet", hint="run `wikiholt sync`") from error
            if create or not _is_unwritable(error):
                raise
            return _open_reader(file)


def open_immutable(file: Path) -> sqlite3.Connection:
    """Open a file that has no writer, read-only, without creating files beside it."""
    _require_regular_files(file)
    with translate_errors():
        try:
            return _open_database(file, "mode=ro&immutable=1", _READER_PRAGMAS, ImmutableConnection)
        except sqlite3.OperationalError as error:
            if file.exists():
                raise
            raise IndexMissing("the file does not exist", hint="choose another one") from error


def _require_regular_files(file: Path) -> None:
    """Raise IndexCorrupt for a directory, link or pipe: SQLite would report an I/O error."""
    for suffix in FILE_SUFFIXES:
        if is_irregular(file.with_name(file.name + suffix), follow=not suffix) and (suffix or file.exists()):
            label = {"": "the index", "-wal": "its log", "-shm": "its shared memory"}[suffix]
            raise IndexCorrupt(f"{label} is not a regular file", hint="run `wikiholt sync` to build it again")


def _open_reader(file: Path) -> sqlite3.Connection:
    """Open read-only where SQLite cannot create its own files."""
    try:
        return _open_database(file, "mode=ro", _READER_PRAGMAS)
    except sqlite3.OperationalError as error:
        if not _is_unwritable(error):
            raise
        # A writer always has a log; without a log the file alone is complete.
        log = file.with_name(file.name + "-wal")
        if log.exists() and log.stat().st_size:
            raise StorageError(
                "the index has changes in its log, and its directory is not writable, so they cannot be applied",
                hint="check free disk space, run `wikiholt sync` as the owner of the data directory, or let this user"
                " write there",
            ) from error
        return _open_database(file, "mode=ro&immutable=1", _READER_PRAGMAS, ImmutableConnection)


def _is_unwritable(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF in _READ_ONLY_CODES or error.sqlite_errorcode in _SHARED_MEMORY_CODES


def _open_database(
    file: Path, mode: str, pragmas: Sequence[str], factory: type[sqlite3.Connection] = sqlite3.Connection
) -> sqlite3.Connection:
    uri = f"file:{quote(str(file))}?{mode}"
    db = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30, factory=factory)
    try:
        # One connection, one file: no statement can reach another wiki.
        db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        for setting in pragmas:
            db.execute(f"PRAGMA {setting}").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def select_in_batches(db: sqlite3.Connection, sql: str, keys: Sequence[object], columns: int = 1) -> Iterator[Row]:
    """Run a statement with `{0}` for the keys, a few hundred at a time, that compares them with `columns` columns."""
    for start in range(0, len(keys), _BATCH_KEYS):
        batch = keys[start : start + _BATCH_KEYS]
        yield from db.execute(sql.format(", ".join("?" * len(batch))), (*batch,) * columns)


# ── the pool of an index ──


class _IdleConnections:
    """The idle connections of all pools of this process, the least recently used first."""

    def __init__(self) -> None:
        self._pools: OrderedDict[sqlite3.Connection, SqlitePool] = OrderedDict()
        self._lock = Lock()

    def add(self, db: sqlite3.Connection, pool: "SqlitePool") -> None:
        """Add a connection, and close the oldest if there are too many."""
        with self._lock:
            self._pools[db] = pool
            too_many = len(self._pools) > _MAX_IDLE_CONNECTIONS_IN_PROCESS
            oldest = self._pools.popitem(last=False) if too_many else None
        if oldest is not None:
            oldest[1].close_idle(oldest[0])

    def remove(self, db: sqlite3.Connection) -> None:
        with self._lock:
            self._pools.pop(db, None)


_idle_connections = _IdleConnections()


def _reset_after_fork() -> None:
    # The parent's connections stay referenced: SQLite connections must not be closed in a child.
    _inherited.append(_idle_connections)
    globals()["_idle_connections"] = _IdleConnections()


_inherited: list[_IdleConnections] = []
os.register_at_fork(after_in_child=_reset_after_fork)


class _SharedConnection(local):
    """The connection that a thread shares among its reads, and the version of the index that they see."""

    db: sqlite3.Connection | None = None
    version: int | None = None


class SqlitePool:
    def __init__(self, connect: Callable[[], sqlite3.Connection], release_files: Callable[[], None]) -> None:
        """`release_files` is called when other indexes need the open files of this one."""
        self._connect = connect
        self._release_files = release_files
        self._idle: list[sqlite3.Connection] = []
        self._lock = Lock()
        self._shared = _SharedConnection()
        self._pid = os.getpid()
        self._closed = False

    def _acquire(self) -> sqlite3.Connection:
        with self._lock:
            if self._pid != os.getpid():
                # SQLite connections must not cross a fork: the child drops its parent's without closing them.
                self._idle, self._pid = [], os.getpid()
            if self._closed:
                raise sqlite3.ProgrammingError("the index was closed")
            idle = self._idle.pop() if self._idle else None
        if idle is not None:
            _idle_connections.remove(idle)
            return idle
        return self._connect()

    def _release(self, db: sqlite3.Connection) -> None:
        if db.in_transaction:
            db.rollback()
        with self._lock:
            # An immutable connection would not notice a later writer.
            reusable = not isinstance(db, ImmutableConnection)
            kept = (
                reusable and len(self._idle) < _MAX_IDLE_CONNECTIONS and not self._closed and self._pid == os.getpid()
            )
            if kept:
                self._idle.append(db)
        if kept:
            _idle_connections.add(db, self)
        else:
            db.close()

    def close_idle(self, db: sqlite3.Connection) -> None:
        """Close this connection unless a thread has taken it meanwhile."""
        with self._lock:
            if db not in self._idle:
                return
            self._idle.remove(db)
            is_last = not self._idle
        db.close()
        if is_last:
            self._release_files()

    def get_version(self) -> int:
        """The version of the index, read once in a snapshot that the thread shares."""
        version = self._shared.version
        if version is None:
            with self.read_connection() as db:
                version = int(db.execute("SELECT version FROM state").fetchone()[0])
            if self._shared.db is not None:
                self._shared.version = version
        return version

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection]:
        """A connection whose statements each see the latest committed state, or the snapshot that the thread shares."""
        shared = self._shared.db
        with translate_errors():
            if shared is not None:
                yield shared
                return
            db = self._acquire()
            try:
                yield db
            finally:
                self._release(db)

    @contextmanager
    def read_snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection whose statements all see the same committed state."""
        with self.read_connection() as db:
            if not db.in_transaction:
                db.execute("BEGIN")
            yield db

    @contextmanager
    def share_snapshot(self) -> Iterator[None]:
        """Inside the block, all reads of this thread use one connection and see the same committed state."""
        if self._shared.db is not None:
            yield
            return
        with translate_errors():
            db = self._acquire()
        try:
            with translate_errors():
                db.execute("BEGIN")
            self._shared.db = db
            yield
        finally:
            self._shared.db = self._shared.version = None
            self._release(db)

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction, committed unless the block raises."""
        with translate_errors():
            db = self._acquire()
            try:
                db.execute(f"PRAGMA {WRITER_PRAGMA}")
                db.execute("BEGIN IMMEDIATE")
                yield db
                db.execute("COMMIT")
            finally:
                self._release(db)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            _idle_connections.remove(db)
            db.close()
