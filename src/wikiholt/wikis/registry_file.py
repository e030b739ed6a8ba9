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

from wikiholt.errors import Busy, IndexCorrupt, IndexTooNew, IndexUnavailable, StorageError, WikiholtError
from wikiholt.regular_files import is_irregular, move_away
from wikiholt.wikis import registry_schema
from wikiholt.wikis.registry_files import (
    EMPTY_CHECKSUM,
    RECOVERY_HINT,
    ChecksumFile,
    LeftoverData,
    make_lost_registry_error,
    make_outdated_registry_error,
    replace_file,
)

_STORAGE_ERROR_CODES = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN}
_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SHARED_MEMORY_CODES = {sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP}

FileIdentity = tuple[int, int, int, int, int]
"""Process, device, inode, size and time of change: a file with another stamp is opened and verified again."""


class RegistryFile:
    """The registry's file. Nothing is touched before the first use."""

    is_shared = False

    def __init__(self, path: Path, timeout: float, remains: LeftoverData | None = None) -> None:
        """`remains` says what an earlier registry has left here, should this file be missing."""
        self.path = path
        self._timeout_s = timeout
        self.remains = remains
        self._checksum_file = ChecksumFile(path)
        self._lock = threading.RLock()
        self._users = 0
        self._current: tuple[FileIdentity, sqlite3.Connection] | None = None
        self._inherited: list[sqlite3.Connection] = []

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection | None]:
        """The connection, for reading; None while there is no registry yet."""
        with self._use_connection():
            yield self._get_connection()

    @contextmanager
    def write_transaction(self) -> Iterator[registry_schema.RegistryTransaction]:
        """One write transaction, which is sealed and committed unless the block raises."""
        with self._use_connection():
            connection = self._get_connection() or self._create_file()
            self._restrict_permissions()
            connection.execute("BEGIN IMMEDIATE")
            try:
                ledger = registry_schema.RegistryTransaction(connection)
                before = registry_schema.read_checksum(connection)
                yield ledger
                ledger.write_checksum()
                self._checksum_file.write(before, registry_schema.read_checksum(connection))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            # What was removed is to be gone from the log too; a reader at work only puts that off to the next write.
            with suppress(sqlite3.OperationalError):
                if ledger.has_deletions:
                    connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._drop_old_checksums(connection)
            self._update_stamp()

    @contextmanager
    def read_immutable_copy(self) -> Iterator[sqlite3.Connection]:
        """A copy of a registry that nobody writes, verified, and brought to today's form in memory."""
        with self._translate_errors(), closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            with closing(_connect_file(self.path, "mode=ro&immutable=1", self._timeout_s)) as connection:
                self._verify(connection)
                connection.backup(copy)
            registry_schema.migrate_schema(copy)
            yield copy

    def write_copy(self, to: Path) -> str | None:
        """Copy the registry and return its seal, both as of one moment, whoever writes meanwhile."""
        with self._use_connection():
            connection = self._get_connection()
            if connection is None:
                return None
            connection.execute("BEGIN")
            try:
                seal = registry_schema.read_checksum(connection)
                with closing(sqlite3.connect(to, isolation_level=None)) as copy:
                    connection.backup(copy)
                return seal
            finally:
                connection.execute("ROLLBACK")

    def replace_contents(self, rows: registry_schema.RegistryRows) -> str | None:
        """Put a file with these rows in the place of the one there is."""
        with self._lock, self._translate_errors():
            self.close()
            return replace_file(self.path, rows)

    def close(self) -> None:
        """Let go of the file; the next use opens it again."""
        with self._lock:
            if self._current:
                self._current[1].close()
            self._current = None

    @contextmanager
    def _use_connection(self) -> Iterator[None]:
        with self._lock, self._translate_errors():
            self._users += 1
            try:
                yield
            finally:
                self._users -= 1

    def _get_connection(self) -> sqlite3.Connection | None:
        if self._users > 1 and self._current:  # a caller further up uses it
            return self._current[1]
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self.close()
            self._require_none_lost()
            return None
        except OSError:
            if not is_irregular(self.path, follow=True):
                raise
            raise self._make_corrupt_error("it is not a regular file") from None
        stamp = _get_stamp(found)
        if self._current and self._current[0] != stamp:
            if self._current[0][0] != stamp[0]:  # SQLite forbids even closing a connection on the far side of a fork
                self._inherited.append(self._current[1])
                self._current = None
            self.close()
        if not self._current:
            self._current = (stamp, self._open_verified(found))
            self._update_stamp()
        return self._current[1]

    def _update_stamp(self) -> None:
        """Take the file as this process has just left it for the one that was verified."""
        if self._current:
            with suppress(FileNotFoundError):
                self._current = (_get_stamp(self.path.stat()), self._current[1])

    def _require_none_lost(self) -> None:
        """Raise IndexCorrupt if there was a registry here; there is no file now."""
        remains = self.remains.find() if self.remains else ""
        if not remains and self._checksum_file.read() - {EMPTY_CHECKSUM}:
            remains = "traces of one that had wikis"
        if remains:
            raise make_lost_registry_error(f"The registry {self.path}", remains)

    def _open_verified(self, found: os.stat_result) -> sqlite3.Connection:
        self._require_regular_files()
        if found.st_size == 0:
            raise self._make_corrupt_error("it is empty")
        connection = _open_file(self.path, self._timeout_s)
        try:
            self._verify(connection)
            connection = self._migrate(connection)
            self._require_latest(connection)
            return connection
        except BaseException:
            connection.close()
            raise

    def _require_latest(self, connection: sqlite3.Connection) -> None:
        """Raise IndexCorrupt unless this is the registry that was last written here."""
        if self._is_latest(connection):
            return self._drop_old_checksums(connection)
        # Another process may have committed between the two readings: while nobody can write they are of one moment.
        with suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
        latest = self._is_latest(connection)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not latest:
            raise make_outdated_registry_error(f"The registry {self.path}")
        return None

    def _is_latest(self, connection: sqlite3.Connection) -> bool:
        seal, known = registry_schema.read_checksum(connection), self._checksum_file.read()
        if known:
            return seal in known
        if self.remains is None:
            return True
        if seal == EMPTY_CHECKSUM and (remains := self.remains.find()):
            raise make_lost_registry_error(f"The registry {self.path}", remains)
        return registry_schema.has_mark(connection, registry_schema.KEYED_MARK) or not self.remains.had_keys()

    def _drop_old_checksums(self, connection: sqlite3.Connection) -> None:
        """Leave only the seal that was committed in the file of seals; where that cannot be, the next use does it."""
        with suppress(sqlite3.OperationalError, OSError):
            if self._checksum_file.read() == {registry_schema.read_checksum(connection)}:
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._checksum_file.write(registry_schema.read_checksum(connection))
            finally:
                connection.execute("ROLLBACK")

    def _require_regular_files(self) -> None:
        """What the log held is lost where it is none: an older registry might open what a newer one has closed."""
        if is_irregular(self.path, follow=True):
            raise self._make_corrupt_error("it is not a regular file")
        if is_irregular(self.path.with_name(f"{self.path.name}-wal")):
            raise self._make_corrupt_error("its log is not a regular file")
        shared = self.path.with_name(f"{self.path.name}-shm")
        if is_irregular(shared):  # nothing lasting is in it: SQLite makes it anew
            move_away(shared)

    def _verify(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != registry_schema.APPLICATION_ID:
            raise self._make_corrupt_error("it is not a registry of Wikiholt")
        if version > registry_schema.SCHEMA_VERSION:
            raise IndexTooNew(
                f"The registry {self.path} was written by a newer Wikiholt: version {version}, not {registry_schema.SCHEMA_VERSION}.",
                hint="Use that Wikiholt, or a newer one.",
            )
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise self._make_corrupt_error(verdict)
        connection.execute("BEGIN")
        try:
            if not registry_schema.is_intact(connection):
                raise self._make_corrupt_error("its rows are not those that were written")
        finally:
            connection.execute("ROLLBACK")

    def _migrate(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """The same registry in today's form; one that cannot be written is brought there in memory, for reading."""
        try:
            registry_schema.migrate_schema(connection)
            return connection
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                raise
        with closing(connection):
            copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            connection.backup(copy)
        registry_schema.migrate_schema(copy)
        copy.execute("PRAGMA query_only = ON")
        return copy

    def _restrict_permissions(self) -> None:
        """Take from others what an older Wikiholt, or a copy by hand, gave them; its owner may."""
        for ending in ("", "-wal", "-shm"):
            file = self.path.with_name(self.path.name + ending)
            with suppress(OSError):
                if (mode := file.stat().st_mode) & 0o077:
                    file.chmod(mode & 0o700)

    def _create_file(self) -> sqlite3.Connection:
        """Make the file beside its place and move it there in one step; a file another process made first is kept."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        try:
            # Secrets of webhooks and passwords in URLs are in it: it is its owner's alone, whatever the umask.
            draft.touch(0o600, exist_ok=False)
            with closing(sqlite3.connect(draft, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = WAL")
                registry_schema.create_tables(connection)
            _move_if_free(draft, self.path)
        finally:
            draft.unlink(missing_ok=True)
        made = self._get_connection()
        if made is None:
            raise _make_storage_error(self.path, "the file was removed while it was made")
        return made

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours; none of them may pass for an empty registry."""
        try:
            yield
        except WikiholtError:
            raise
        except sqlite3.Error as error:
            raise self._to_error(error) from error
        except UnicodeDecodeError as error:  # a message of SQLite that quotes the damage
            raise self._make_corrupt_error("it holds text that is none") from error
        except OSError as error:
            raise _make_storage_error(self.path, error.strerror or str(error)) from error

    def _to_error(self, error: sqlite3.Error) -> IndexUnavailable | Busy:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY_CODES:
            return Busy("Another process is writing the registry.", hint="Try again in a moment.")
        if code in _STORAGE_ERROR_CODES:
            return _make_storage_error(self.path, str(error))
        # Python's sqlite3 quotes what it cannot decode, and that may be another wiki's.
        return self._make_corrupt_error("it holds text that is none" if "decode" in str(error).lower() else str(error))

    def _make_corrupt_error(self, reason: str) -> IndexCorrupt:
        return IndexCorrupt(
            f"The registry {self.path} is damaged: {reason}.",
            hint=RECOVERY_HINT,
        )


def _get_stamp(found: os.stat_result) -> FileIdentity:
    return os.getpid(), found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _make_storage_error(path: Path, reason: str) -> StorageError:
    return StorageError(
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
    connection = _connect_file(path, "mode=rw", timeout)
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
        if not (closed_to_writing or error.sqlite_errorcode in _SHARED_MEMORY_CODES) or pending:
            raise
        return _connect_file(path, "mode=ro&immutable=1", timeout)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_file(path: Path, mode: str, timeout: float) -> sqlite3.Connection:
    location = f"file:{quote(path.absolute().as_posix())}?{mode}"
    return sqlite3.connect(location, uri=True, timeout=timeout, isolation_level=None, check_same_thread=False)
