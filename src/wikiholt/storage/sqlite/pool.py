"""A pool of connections to one index file, each used by one thread at a time.

Readers take any idle connection; a few stay open. In WAL mode readers never wait for the writer.
"""

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from wikiholt.storage.sqlite.errors import translate_errors
from wikiholt.storage.sqlite.schema import ImmutableConnection, open_connection, require_owner

_MAX_IDLE_CONNECTIONS = 3


class SqlitePool:
    def __init__(
        self, file: Path, connect: Callable[[Path], sqlite3.Connection] = open_connection, wiki_id: str | None = None
    ) -> None:
        """With `wiki_id`, each new connection checks the file's owner, because the file may have been replaced."""
        self._file = file
        self._wiki_id = wiki_id
        self._connect = connect
        self._idle: list[sqlite3.Connection] = []
        self._lock = Lock()
        self._pid = os.getpid()
        self._closed = False

    def _acquire(self) -> sqlite3.Connection:
        with self._lock:
            if self._pid != os.getpid():
                # SQLite connections must not cross a fork: the child drops its parent's without closing them.
                self._idle, self._pid = [], os.getpid()
            if self._closed:
                raise sqlite3.ProgrammingError("the index was closed")
            if self._idle:
                return self._idle.pop()
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
            if reusable and len(self._idle) < _MAX_IDLE_CONNECTIONS and not self._closed and self._pid == os.getpid():
                self._idle.append(db)
                return
        db.close()

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection]:
        """A connection whose statements each see the latest committed state."""
        db = self._acquire()
        try:
            with translate_errors():
                yield db
        finally:
            self._release(db)

    @contextmanager
    def read_snapshot(self) -> Iterator[sqlite3.Connection]:
        """A connection whose statements all see the same committed state."""
        with self.read_connection() as db:
            db.execute("BEGIN")
            yield db

    @contextmanager
    def write_transaction(self) -> Iterator[sqlite3.Connection]:
        """One write transaction, committed unless the block raises."""
        with self.read_connection() as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for db in idle:
            db.close()
