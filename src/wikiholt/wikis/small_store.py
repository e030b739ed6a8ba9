"""A few small tables that several processes share: an SQLite file, or tables in PostgreSQL.

Both execute the same statements: with `?` placeholders, lower-case types that both know, and `ON CONFLICT`.
"""

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from wikiholt.errors import Busy, IndexCorrupt, IndexTooNew, InvalidSetting, StorageError, WikiholtError
from wikiholt.regular_files import fsync_path, is_irregular, make_quarantine_name

_DAMAGE_CODES = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR}
"""SQLITE_ERROR is a table or column that is missing."""
_STORAGE_HINT = "Check free space, and that the user who runs wikiholt may write to the directory."
_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_OLD_DRAFT_S = 600.0
"""A younger draft may still be in use by another process."""

Value = str | float | None
"""A value of a column."""


class ResultRows(Protocol):
    """The result of a statement."""

    @property
    def rowcount(self) -> int: ...

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class StoreConnection(Protocol):
    """Executes statements with `?` placeholders."""

    def execute(self, statement: str, values: Sequence[Value] = (), /) -> ResultRows: ...


class SmallStore(Protocol):
    """Safe to use from many threads and processes, and after a fork. Raises errors of `wikiholt.errors`."""

    is_shared: bool
    """Whether other machines use the tables too."""

    def read(self) -> AbstractContextManager[StoreConnection | None]:
        """A connection for reading; None if nothing was stored yet."""
        ...

    def read_snapshot(self) -> AbstractContextManager[StoreConnection | None]:
        """Like `read`, and all statements see the same state."""
        ...

    def write(self) -> AbstractContextManager[StoreConnection]:
        """One exclusive transaction, committed durably unless the block raises."""
        ...

    def get_identity(self) -> object:
        """A value that changes when somebody else may have replaced the tables; None if nothing was stored yet."""
        ...

    def replace(self, fill: Callable[[StoreConnection], None]) -> str | None:
        """Replace damaged or missing tables by what `fill` writes; returns the name under which the old are kept."""
        ...

    def check(self) -> None:
        """Check the tables after `get_identity` has changed. Raises IndexCorrupt and IndexTooNew."""
        ...

    def follow(self, refresh: Callable[[], object], interval_s: float) -> Callable[[], None]:
        """If other machines use the tables: call `refresh` in a thread, after each change and at this interval.

        Returns what ends the thread.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoreTables:
    """The tables of a store, and what distinguishes its file from others."""

    noun: str
    """What the file is, for messages."""
    application_id: int
    version: int
    statements: tuple[str, ...]
    damage_hint: str
    synchronous: str = "EXTRA"
    """EXTRA and not FULL: FULL may undo the last commit after a power failure, if the journal's removal is lost."""


class _Reads:
    """The reads of one process, which share a connection."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.depth = 0
        """How many reads are one inside the other."""


class SmallStoreFile:
    """A `SmallStore` in one file with a rollback journal. It is created complete, by a rename."""

    is_shared = False

    def __init__(
        self,
        path: Path,
        tables: StoreTables,
        timeout_s: float = 10.0,
        *,
        fill: Callable[[StoreConnection], None] = lambda _: None,
    ) -> None:
        """`fill` writes the first rows of a new file."""
        self.path = path
        self._tables = tables
        self._timeout_s = timeout_s
        self._fill = fill
        self._reads: dict[int, _Reads] = {}
        """Those of this process, and of its parent before a fork: a thread that no longer exists may hold that lock."""
        self._reader: tuple[tuple[int, object], sqlite3.Connection] | None = None
        self._inherited: list[sqlite3.Connection] = []

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection | None]:
        reads = self._reads.get(os.getpid()) or self._reads.setdefault(os.getpid(), _Reads())
        with reads.lock, self._translate_errors():
            reader = self._reader[1] if reads.depth and self._reader is not None else self._get_reader()
            reads.depth += 1
            try:
                yield reader
            finally:
                reads.depth -= 1

    @contextmanager
    def read_snapshot(self) -> Iterator[sqlite3.Connection | None]:
        with self._translate_errors():
            if self.get_identity() is None:
                yield None
                return
            with closing(self._connect()) as connection:
                connection.execute("BEGIN")
                yield connection

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        with self._translate_errors():
            if self.get_identity() is None:
                self._create()
            with suppress(OSError):  # a manual copy may have given permissions to other users
                self.path.chmod(self.path.stat().st_mode & 0o700)
            with closing(self._connect()) as connection:
                connection.execute(f"PRAGMA synchronous = {self._tables.synchronous}")
                # Deleted bytes are overwritten. Without spills, readers wait only for the end of a commit.
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("PRAGMA cache_spill = OFF")
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")

    def check(self) -> None:
        with self._translate_errors():
            with closing(self._connect()) as connection:
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                (fault,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if application != self._tables.application_id:
                raise self._make_damage_error(f"it is not a {self._tables.noun} of Wikiholt")
            if version > self._tables.version:
                raise IndexTooNew(
                    f"The {self._tables.noun} {self.path} was written by a newer Wikiholt: version {version}, this one"
                    f" knows {self._tables.version}.",
                    hint="Use that Wikiholt, or a newer one.",
                )
            if fault != "ok":
                raise self._make_damage_error(fault)
            if version < self._tables.version:
                raise self._make_damage_error(f"its version {version} is too old")
        for draft in self.path.parent.glob(f".{self.path.name}.*"):  # of killed processes, with secrets
            with suppress(OSError):
                if time.time() - draft.stat().st_mtime > _OLD_DRAFT_S:
                    draft.unlink(missing_ok=True)

    def follow(self, refresh: Callable[[], object], interval_s: float) -> Callable[[], None]:  # noqa: ARG002
        return lambda: None

    def get_identity(self) -> object:
        """Device, inode, size and mtime: a change by anyone changes one of them."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise self._make_directory_error() from error
        except OSError as error:
            raise self._make_damage_error(error.strerror or str(error)) from error
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def replace(self, fill: Callable[[StoreConnection], None]) -> str | None:
        with self._translate_errors(), self._open_draft() as draft:
            write_file(draft, self._tables, fill)
            name = self.set_aside()
            draft.replace(self.path)
            fsync_path(self.path.parent)
        return name

    def set_aside(self) -> str | None:
        """Rename the file and its journal, and return the new name; None if there is no file."""
        name = make_quarantine_name(self.path.name)
        found = None
        for suffix in ("-journal", "-wal", "-shm", ""):  # the middle two belong to files of an earlier version
            with suppress(FileNotFoundError):
                found = self._get_part(suffix).rename(self.path.with_name(name + suffix))
        return name if found else None

    def _get_reader(self) -> sqlite3.Connection | None:
        """The connection through which the threads of this process read, opened again after every change."""
        identity = self.get_identity()
        if identity is None:
            return None
        if self._reader is None or self._reader[0] != (os.getpid(), identity):
            if self._reader is not None:
                (pid, _), old = self._reader
                self._reader = None
                if pid == os.getpid():
                    old.close()
                else:
                    self._inherited.append(old)  # SQLite forbids closing a connection on the far side of a fork
            self._reader = (os.getpid(), identity), self._connect()
        return self._reader[1]

    def _connect(self) -> sqlite3.Connection:
        if is_irregular(self.path, follow=True) or is_irregular(self._get_part("-journal")):
            raise self._make_damage_error("it or its journal is not a regular file")
        if self.path.stat().st_size == 0:
            raise self._make_damage_error("it is empty")
        return connect(self.path, "mode=rw", self._timeout_s)

    def _create(self) -> None:
        """Create the file. One that another process created first is kept."""
        with self._open_draft() as draft:
            write_file(draft, self._tables, self._fill)
            with suppress(FileExistsError):
                os.link(draft, self.path)
            fsync_path(self.path.parent)

    @contextmanager
    def _open_draft(self) -> Iterator[Path]:
        """A new empty file beside this one, which is removed at the end unless it was renamed."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except (NotADirectoryError, FileExistsError) as error:
            raise self._make_directory_error() from error
        draft = self.path.with_name(f".{self.path.name}.{os.urandom(8).hex()}")
        try:
            draft.touch(0o600, exist_ok=False)  # readable by its owner only, whatever the umask
            yield draft
        finally:
            draft.unlink(missing_ok=True)

    def _get_part(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of SQLite and the file system. No error may look like an empty store."""
        try:
            yield
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._to_error(error) from error
        except UnicodeEncodeError as error:
            raise make_text_error() from error
        except OSError as error:
            raise self._make_storage_error(error.strerror or str(error)) from error

    def _to_error(self, error: sqlite3.Error | UnicodeDecodeError) -> WikiholtError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY_CODES:
            return Busy(f"Another process is writing the {self._tables.noun}.", hint="Try again in a moment.")
        if "decode" in str(error).lower():  # the message quotes it, and that may be data of another wiki
            return self._make_damage_error("it contains text that is not UTF-8")
        return self._make_damage_error(str(error)) if code in _DAMAGE_CODES else self._make_storage_error(str(error))

    def _make_storage_error(self, reason: str) -> StorageError:
        return StorageError(
            f"The {self._tables.noun} {self.path} cannot be read or written: {reason}.",
            hint=_STORAGE_HINT,
        )

    def _make_directory_error(self) -> StorageError:
        return StorageError(
            f"The data directory {self.path.parent} is not a directory, or is inside a file.",
            hint="Name a directory with --data; it is created if it is missing.",
        )

    def _make_damage_error(self, reason: str) -> WikiholtError:
        return IndexCorrupt(f"The {self._tables.noun} {self.path} is damaged: {reason}.", hint=self._tables.damage_hint)


def make_text_error() -> InvalidSetting:
    """The error for text that cannot be stored."""
    return InvalidSetting(
        "a name or setting contains invalid text", hint="remove NUL characters and unpaired surrogates"
    )


def connect(path: Path, options: str, timeout_s: float = 10.0) -> sqlite3.Connection:
    """Open a file with URI options. One connection, one file: no statement can reach another."""
    location = f"file:{quote(path.absolute().as_posix())}?{options}"
    connection = sqlite3.connect(location, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    return connection


def write_file(file: Path, tables: StoreTables, fill: Callable[[StoreConnection], None]) -> None:
    """Create the tables in a new or empty file, with the rows that `fill` writes, and flush it to disk.

    Raises StorageError.
    """
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA synchronous = {tables.synchronous}")
            connection.execute(f"PRAGMA application_id = {tables.application_id}")
            connection.execute(f"PRAGMA user_version = {tables.version}")
            connection.execute("BEGIN")
            for statement in tables.statements:
                connection.execute(statement)
            fill(connection)
            connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        message = f"The {tables.noun} cannot be written to {file.parent}: {error}."
        raise StorageError(message, hint=_STORAGE_HINT) from error
    fsync_path(file)
