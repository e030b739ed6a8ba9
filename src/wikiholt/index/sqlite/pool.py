"""A pool of connections to one index file, each used by one thread at a time.

Readers take any idle connection; a few stay open, and in all pools of the process so few that thousands of wikis need
few open files. In WAL mode readers never wait for the writer.
"""

import os
import sqlite3
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, local

from wikiholt.index.sqlite.errors import translate_errors
from wikiholt.index.sqlite.schema import WRITER_PRAGMA, ImmutableConnection, open_connection, require_owner

_MAX_IDLE_CONNECTIONS = 3
_MAX_IDLE_CONNECTIONS_IN_PROCESS = 32
"""A connection has up to three open files. Opening another takes less than a millisecond."""


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
    def __init__(
        self,
        file: Path,
        connect: Callable[[Path], sqlite3.Connection] = open_connection,
        wiki_id: str | None = None,
        release_files: Callable[[], None] = lambda: None,
    ) -> None:
        """With `wiki_id`, each new connection checks the file's owner, because the file may have been replaced.

        `release_files` is called when other indexes need the open files of this one.
        """
        self._file = file
        self._wiki_id = wiki_id
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
        db = self._connect(self._file)
        try:
            if self._wiki_id is not None:
                require_owner(db, self._wiki_id)
        except BaseException:
            db.close()
            raise
        return db

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
