"""The registry's SQLite file: made whole or not at all, opened once a process, every fault of it said plainly.

One connection serves all threads of a process, one at a time; a file that was replaced on disk, or a process that was
forked, gets a new one. Other processes are kept apart by SQLite's own locks.
"""

import os
import secrets
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from wikiholt.errors import Busy, IndexCorrupt, IndexFault, IndexTooNew, StorageRefused, WikiholtError
from wikiholt.plainfiles import is_odd, move_away
from wikiholt.registry import schema
from wikiholt.registry.loss import BLANK, RECOVER, Remains, SealFile, lost, outdated
from wikiholt.registry.mending import install

_REFUSED = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_NO_ROOM = {sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP}

Stamp = tuple[int, int, int, int, int]
"""Process, device, inode, size and time of change: a file with another stamp is opened and verified again."""


class RegistryFile:
    """The registry's file. Nothing is touched before the first use."""

    shared = False

    def __init__(self, path: Path, timeout: float, remains: Remains | None = None) -> None:
        """`remains` says what an earlier registry has left here, should this file be missing."""
        self.path = path
        self._timeout = timeout
        self.remains = remains
        self._seals = SealFile(path)
        self._lock = threading.RLock()
        self._users = 0
        self._open: tuple[Stamp, sqlite3.Connection] | None = None
        self._inherited: list[sqlite3.Connection] = []

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """The connection, for reading; None while there is no registry yet."""
        with self._using():
            yield self._connection()

    @contextmanager
    def writing(self) -> Iterator[schema.Ledger]:
        """One write transaction, which is sealed and committed unless the block raises."""
        with self._using():
            connection = self._connection() or self._create()
            self._tighten()
            connection.execute("BEGIN IMMEDIATE")
            try:
                ledger = schema.Ledger(connection)
                before = schema.seal(connection)
                yield ledger
                ledger.seal()
                self._seals.write(before, schema.seal(connection))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            # What was removed is to be gone from the log too; a reader at work only puts that off to the next write.
            with suppress(sqlite3.OperationalError):
                if ledger.deleted:
                    connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._settle(connection)
            self._restamp()

    @contextmanager
    def unchanging(self) -> Iterator[sqlite3.Connection]:
        """A copy of a registry that nobody writes, verified, and brought to today's form in memory."""
        with self._faults(), closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            with closing(_connect(self.path, "mode=ro&immutable=1", self._timeout)) as connection:
                self._verify(connection)
                connection.backup(copy)
            schema.migrate(copy)
            yield copy

    def copy(self, to: Path) -> str | None:
        """Copy the registry and return its seal, both as of one moment, whoever writes meanwhile."""
        with self._using():
            connection = self._connection()
            if connection is None:
                return None
            connection.execute("BEGIN")
            try:
                seal = schema.seal(connection)
                with closing(sqlite3.connect(to, isolation_level=None)) as copy:
                    connection.backup(copy)
                return seal
            finally:
                connection.execute("ROLLBACK")

    def install(self, rows: schema.Rows) -> str | None:
        """Put a file with these rows in the place of the one there is."""
        with self._lock, self._faults():
            self.close()
            return install(self.path, rows)

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            if self._open:
                self._open[1].close()
            self._open = None

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock, self._faults():
            self._users += 1
            try:
                yield
            finally:
                self._users -= 1

    def _connection(self) -> sqlite3.Connection | None:
        if self._users > 1 and self._open:  # a caller further up uses it
            return self._open[1]
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self.close()
            self._require_none_lost()
            return None
        except OSError:
            if not is_odd(self.path, follow=True):
                raise
            raise self._corrupt("it is not a regular file") from None
        stamp = _stamp(found)
        if self._open and self._open[0] != stamp:
            if self._open[0][0] != stamp[0]:  # SQLite forbids even closing a connection on the far side of a fork
                self._inherited.append(self._open[1])
                self._open = None
            self.close()
        if not self._open:
            self._open = (stamp, self._connect(found))
            self._restamp()
        return self._open[1]

    def _restamp(self) -> None:
        """Take the file as this process has just left it for the one that was verified."""
        if self._open:
            with suppress(FileNotFoundError):
                self._open = (_stamp(self.path.stat()), self._open[1])

    def _require_none_lost(self) -> None:
        """Raise IndexCorrupt if there was a registry here; there is no file now."""
        remains = self.remains.find() if self.remains else ""
        if not remains and self._seals.read() - {BLANK}:
            remains = "traces of one that had wikis"
        if remains:
            raise lost(f"The registry {self.path}", remains)

    def _connect(self, found: os.stat_result) -> sqlite3.Connection:
        self._require_plain()
        if found.st_size == 0:
            raise self._corrupt("it is empty")
        connection = _open_file(self.path, self._timeout)
        try:
            self._verify(connection)
            connection = self._of_today(connection)
            self._require_latest(connection)
            return connection
        except BaseException:
            connection.close()
            raise

    def _require_latest(self, connection: sqlite3.Connection) -> None:
        """Raise IndexCorrupt unless this is the registry that was last written here."""
        if self._is_latest(connection):
            return self._settle(connection)
        # Another process may have committed between the two readings: while nobody can write they are of one moment.
        with suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
        latest = self._is_latest(connection)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not latest:
            raise outdated(f"The registry {self.path}")
        return None

    def _is_latest(self, connection: sqlite3.Connection) -> bool:
        seal, known = schema.seal(connection), self._seals.read()
        if known:
            return seal in known
        if self.remains is None:
            return True
        if seal == BLANK and (remains := self.remains.find()):
            raise lost(f"The registry {self.path}", remains)
        return schema.marked(connection, schema.KEYED) or not self.remains.had_keys()

    def _settle(self, connection: sqlite3.Connection) -> None:
        """Leave only the seal that was committed in the file of seals; where that cannot be, the next use does it."""
        with suppress(sqlite3.OperationalError, OSError):
            if self._seals.read() == {schema.seal(connection)}:
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._seals.write(schema.seal(connection))
            finally:
                connection.execute("ROLLBACK")

    def _require_plain(self) -> None:
        """What the log held is lost where it is none: an older registry might open what a newer one has closed."""
        if is_odd(self.path, follow=True):
            raise self._corrupt("it is not a regular file")
        if is_odd(self.path.with_name(f"{self.path.name}-wal")):
            raise self._corrupt("its log is not a regular file")
        shared = self.path.with_name(f"{self.path.name}-shm")
        if is_odd(shared):  # nothing lasting is in it: SQLite makes it anew
            move_away(shared)

    def _verify(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != schema.APPLICATION_ID:
            raise self._corrupt("it is not a registry of Wikiholt")
        if version > schema.VERSION:
            raise IndexTooNew(
                f"The registry {self.path} was written by a newer Wikiholt: version {version}, not {schema.VERSION}.",
                hint="Use that Wikiholt, or a newer one.",
            )
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise self._corrupt(verdict)
        connection.execute("BEGIN")
        try:
            if not schema.intact(connection):
                raise self._corrupt("its rows are not those that were written")
        finally:
            connection.execute("ROLLBACK")

    def _of_today(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """The same registry in today's form; one that cannot be written is brought there in memory, for reading."""
        try:
            schema.migrate(connection)
            return connection
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise
        with closing(connection):
            copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            connection.backup(copy)
        schema.migrate(copy)
        copy.execute("PRAGMA query_only = ON")
        return copy

    def _tighten(self) -> None:
        """Take from others what an older Wikiholt, or a copy by hand, gave them; its owner may."""
        for ending in ("", "-wal", "-shm"):
            file = self.path.with_name(self.path.name + ending)
            with suppress(OSError):
                if (mode := file.stat().st_mode) & 0o077:
                    file.chmod(mode & 0o700)

    def _create(self) -> sqlite3.Connection:
        """Make the file beside its place and move it there in one step; a file another process made first is kept."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            # Secrets of webhooks and passwords in URLs are in it: it is its owner's alone, whatever the umask.
            draft.touch(0o600, exist_ok=False)
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                schema.create(connection)
            _move_if_free(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)
        made = self._connection()
        if made is None:
            raise _refused(self.path, "the file was removed while it was made")
        return made

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn SQLite's errors into ours; none of them may pass for an empty registry."""
        try:
            yield
        except WikiholtError:
            raise
        except sqlite3.Error as error:
            raise self._fault(error) from error
        except UnicodeDecodeError as error:  # a message of SQLite that quotes the damage
            raise self._corrupt("it holds text that is none") from error
        except OSError as error:
            raise _refused(self.path, error.strerror or str(error)) from error

    def _fault(self, error: sqlite3.Error) -> IndexFault | Busy:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY:
            return Busy("Another process is writing the registry.", hint="Try again in a moment.")
        if code in _REFUSED:
            return _refused(self.path, str(error))
        # Python's sqlite3 quotes what it cannot decode, and that may be another wiki's.
        return self._corrupt("it holds text that is none" if "decode" in str(error).lower() else str(error))

    def _corrupt(self, reason: str) -> IndexCorrupt:
        return IndexCorrupt(
            f"The registry {self.path} is damaged: {reason}.",
            hint=RECOVER,
        )


def _stamp(found: os.stat_result) -> Stamp:
    return os.getpid(), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _refused(path: Path, reason: str) -> StorageRefused:
    return StorageRefused(
        f"The registry {path} cannot be read or written: {reason}.",
        hint="Check free space, and that the user who runs wikiholt may write to the directory.",
    )


def _move_if_free(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:  # a file system without links
        if not path.exists():
            draft.rename(path)


def _open_file(path: Path, timeout: float) -> sqlite3.Connection:
    connection = _connect(path, "mode=rw", timeout)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        # The bytes of a removed wiki are overwritten, not only forgotten. That leaves copies of rows that were moved
        # from page to page, which is why a deletion ends with VACUUM; it needs room to work in, here in memory.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
    except sqlite3.OperationalError as error:
        connection.close()
        closed_to_writing = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        log = path.with_name(f"{path.name}-wal")
        pending = log.exists() and bool(log.stat().st_size)
        # A write-ahead log needs a directory that can be written, and room; a file without one can be read as it lies.
        if not (closed_to_writing or error.sqlite_errorcode in _NO_ROOM) or pending:
            raise
        return _connect(path, "mode=ro&immutable=1", timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    location = f"file:{quote(path.absolute().as_posix())}?{mode}"
    return sqlite3.connect(location, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
