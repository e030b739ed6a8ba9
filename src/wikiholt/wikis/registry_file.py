"""The registry's SQLite file: created atomically, opened once per process, verified whenever it changed.

All threads of a process share one connection, one at a time. A file that was replaced, or a forked process, gets a new
connection. SQLite's locks protect against other processes.
"""

import os
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from wikiholt.errors import Busy, IndexCorrupt, IndexTooNew, IndexUnavailable, StorageError, WikiholtError
from wikiholt.regular_files import fsync_path, is_irregular, make_quarantine_name, move_away
from wikiholt.wikis import registry_schema
from wikiholt.wikis.registry_recovery import (
    EMPTY_CHECKSUM,
    RECOVERY_HINT,
    ChecksumFile,
    LeftoverData,
    make_draft_path,
    make_lost_registry_error,
    make_outdated_registry_error,
    remove_old_drafts,
)

if TYPE_CHECKING:
    from wikiholt.wikis.sign_ins import SignInFile

_READ_ONLY_CODES = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN}
_STORAGE_ERROR_CODES = {*_READ_ONLY_CODES, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL}
_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_SHARED_MEMORY_CODES = {sqlite3.SQLITE_IOERR_SHMOPEN, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_IOERR_SHMMAP}

FileIdentity = tuple[int, int, int, int, int]
"""Process, device, inode, size and mtime: if one differs, the file is opened and verified again."""


class RegistryFile:
    """A `RegistryDatabase` in one file. The file is not touched before the first use."""

    is_shared = False

    def __init__(self, path: Path, timeout_s: float, remains: LeftoverData | None = None) -> None:
        """`remains` finds data of an earlier registry if this file is missing."""
        self.path = path
        self._timeout_s = timeout_s
        self.remains = remains
        self._checksum_file = ChecksumFile(path)
        self._lock = threading.RLock()
        self._users = 0
        self._current: tuple[FileIdentity, sqlite3.Connection] | None = None
        self._inherited: list[sqlite3.Connection] = []

    @contextmanager
    def read_connection(self) -> Iterator[sqlite3.Connection | None]:
        """The connection for reading; None if there is no registry yet."""
        with self._use_connection():
            yield self._get_connection()

    @contextmanager
    def write_transaction(self) -> Iterator[registry_schema.RegistryTransaction]:
        """One write transaction. The checksum is updated and the transaction committed unless the block raises."""
        with self._use_connection():
            connection = self._get_connection() or self._create_file()
            self._restrict_permissions()
            connection.execute("BEGIN IMMEDIATE")
            try:
                transaction = registry_schema.RegistryTransaction(connection)
                before = registry_schema.read_checksum(connection)
                yield transaction
                transaction.write_checksum()
                self._checksum_file.write(before, registry_schema.read_checksum(connection))
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            # Deleted data must leave the log too; an active reader only delays that to the next write.
            with suppress(sqlite3.OperationalError):
                if transaction.has_deletions:
                    connection.execute("VACUUM")
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._drop_old_checksums(connection)
            self._update_stamp()

    @contextmanager
    def read_immutable_copy(self) -> Iterator[sqlite3.Connection]:
        """A verified in-memory copy of a registry file that has no writer."""
        with self._translate_errors(), closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
            with closing(_connect_file(self.path, "mode=ro&immutable=1", self._timeout_s)) as connection:
                self._verify(connection)
                connection.backup(copy)
            yield copy

    def write_copy(self, to: Path) -> str | None:
        """Write a consistent copy and return its checksum."""
        with self._use_connection():
            connection = self._get_connection()
            if connection is None:
                return None
            connection.execute("BEGIN")
            try:
                checksum = registry_schema.read_checksum(connection)
                with closing(sqlite3.connect(to, isolation_level=None)) as copy:
                    connection.backup(copy)
                return checksum
            finally:
                connection.execute("ROLLBACK")

    def replace_contents(self, rows: registry_schema.RegistryRows) -> str | None:
        """Replace the file by one with these rows."""
        with self._lock, self._translate_errors():
            self.close()
            return replace_file(self.path, rows)

    def open_sign_ins(self) -> "SignInFile":
        """The sign-ins in a file beside the registry."""
        from wikiholt.wikis.sign_ins import SIGN_INS_FILE, SignInFile  # noqa: PLC0415 - only a service needs it

        return SignInFile(self.path.with_name(SIGN_INS_FILE), self._timeout_s)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
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
        if self._users > 1 and self._current:  # an outer call of this thread uses it
            return self._current[1]
        try:
            status = self.path.stat()
        except FileNotFoundError:
            self.close()
            remains = self._find_remains()
            if not remains:
                return None
            if not self.path.exists():
                raise make_lost_registry_error(f"The registry {self.path}", remains) from None
            return self._get_connection()  # another process has created it in the meantime
        except OSError:
            self._require_regular_files()
            raise
        stamp = _get_stamp(status)
        if self._current and self._current[0] != stamp:
            if self._current[0][0] != stamp[0]:  # SQLite forbids even closing a connection on the far side of a fork
                self._inherited.append(self._current[1])
                self._current = None
            self.close()
        if not self._current:
            self._current = (stamp, self._open_verified(status))
            self._update_stamp()
        return self._current[1]

    def _update_stamp(self) -> None:
        """Accept the file as verified after a write of this process."""
        if self._current:
            with suppress(FileNotFoundError):
                self._current = (_get_stamp(self.path.stat()), self._current[1])

    def _find_remains(self) -> str:
        """What is left of a registry whose file is missing; empty if there was none."""
        remains = self.remains.find() if self.remains else ""
        if not remains and self._checksum_file.read() - {EMPTY_CHECKSUM}:
            return "traces of one that had wikis"
        return remains

    def _open_verified(self, status: os.stat_result) -> sqlite3.Connection:
        self._require_regular_files()
        if status.st_size == 0:
            raise self._make_corrupt_error("it is empty")
        connection = _open_file(self.path, self._timeout_s)
        try:
            self._verify(connection)
            self._require_latest(connection)
            remove_old_drafts(self.path)
            return connection
        except BaseException:
            connection.close()
            raise

    def _require_latest(self, connection: sqlite3.Connection) -> None:
        """Raise IndexCorrupt unless this is the registry that was last written here."""
        if self._is_latest(connection):
            self._drop_old_checksums(connection)
            return
        # Another process may have committed between the two reads; with the write lock both see one state.
        with suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
        latest = self._is_latest(connection)
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if not latest:
            raise make_outdated_registry_error(f"The registry {self.path}")

    def _is_latest(self, connection: sqlite3.Connection) -> bool:
        checksum, known = registry_schema.read_checksum(connection), self._checksum_file.read()
        if known:
            return checksum in known
        if self.remains is None:
            return True
        if checksum == EMPTY_CHECKSUM and (remains := self.remains.find()):
            raise make_lost_registry_error(f"The registry {self.path}", remains)
        return registry_schema.has_mark(connection, registry_schema.KEYED_MARK) or not self.remains.had_keys()

    def _drop_old_checksums(self, connection: sqlite3.Connection) -> None:
        """Keep only the committed checksum in the checksum file; on failure the next use does it."""
        with suppress(sqlite3.OperationalError, OSError):
            if self._checksum_file.read() == {registry_schema.read_checksum(connection)}:
                return
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._checksum_file.write(registry_schema.read_checksum(connection))
            finally:
                connection.execute("ROLLBACK")

    def _require_regular_files(self) -> None:
        """Raise IndexCorrupt for irregular files. Without its log, an older registry might accept a revoked key."""
        if is_irregular(self.path, follow=True):
            raise self._make_corrupt_error("it is not a regular file")
        if is_irregular(self.path.with_name(f"{self.path.name}-wal")):
            raise self._make_corrupt_error("its log is not a regular file")
        shared = self.path.with_name(f"{self.path.name}-shm")
        if is_irregular(shared):  # has no persistent data: SQLite creates a new one
            move_away(shared)

    def _verify(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != registry_schema.APPLICATION_ID:
            raise self._make_corrupt_error("it is not a registry of Wikiholt")
        if version > registry_schema.SCHEMA_VERSION:
            raise IndexTooNew(
                f"The registry {self.path} was written by a newer Wikiholt: version {version}, this one knows"
                f" {registry_schema.SCHEMA_VERSION}.",
                hint="Use that Wikiholt, or a newer one.",
            )
        if version < registry_schema.SCHEMA_VERSION:
            raise self._make_corrupt_error(f"its version {version} is too old")
        (result,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if result != "ok":
            raise self._make_corrupt_error(result)
        connection.execute("BEGIN")
        try:
            if not registry_schema.is_checksum_valid(connection):
                raise self._make_corrupt_error("its rows are not those that were written")
        finally:
            connection.execute("ROLLBACK")

    def _restrict_permissions(self) -> None:
        """Remove permissions of other users, which a manual copy may have given them."""
        for suffix in ("", "-wal", "-shm"):
            file = self.path.with_name(self.path.name + suffix)
            with suppress(OSError):
                if (mode := file.stat().st_mode) & 0o077:
                    file.chmod(mode & 0o700)

    def _create_file(self) -> sqlite3.Connection:
        """Create the file under a temporary name and rename it. A file that another process created first is kept."""
        with _open_draft(self.path) as draft:
            write_file(draft, {table: [] for table in registry_schema.TABLE_COLUMNS})
            _move_if_free(draft, self.path)
        created = self._get_connection()
        if created is None:
            raise _make_storage_error(self.path, "the file was removed while it was created")
        return created

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate errors of SQLite and the file system. No error may look like an empty registry."""
        try:
            yield
        except WikiholtError:
            raise
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise self._to_error(error) from error
        except (NotADirectoryError, FileExistsError) as error:
            message = f"The data directory {self.path.parent} is not a directory, or is inside a file."
            raise StorageError(message, hint="Name a directory with --data; it is created if it is missing.") from error
        except OSError as error:
            raise _make_storage_error(self.path, error.strerror or str(error)) from error

    def _to_error(self, error: sqlite3.Error | UnicodeDecodeError) -> IndexUnavailable | Busy:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in _BUSY_CODES:
            return Busy("Another process is writing the registry.", hint="Try again in a moment.")
        if code in _STORAGE_ERROR_CODES:
            return _make_storage_error(self.path, str(error))
        # The message quotes what could not be decoded, and that may be data of another wiki.
        is_undecodable = "decode" in str(error).lower()
        return self._make_corrupt_error("it contains text that is not UTF-8" if is_undecodable else str(error))

    def _make_corrupt_error(self, reason: str) -> IndexCorrupt:
        return IndexCorrupt(f"The registry {self.path} is damaged: {reason}.", hint=RECOVERY_HINT)


def _get_stamp(status: os.stat_result) -> FileIdentity:
    return os.getpid(), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _make_storage_error(path: Path, reason: str) -> StorageError:
    return StorageError(
        f"The registry {path} cannot be read or written: {reason}.",
        hint="Check free space, and that the user who runs wikiholt may write to the directory.",
    )


@contextmanager
def _open_draft(path: Path) -> Iterator[Path]:
    """A new empty file beside the registry, which is removed at the end unless it was renamed."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = make_draft_path(path)
    try:
        # It will contain webhook secrets and passwords in URLs: readable by its owner only, whatever the umask.
        draft.touch(0o600, exist_ok=False)
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _move_if_free(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        if not path.exists():
            draft.rename(path)


def _open_file(path: Path, timeout_s: float) -> sqlite3.Connection:
    connection = _connect_file(path, "mode=rw", timeout_s)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        connection.execute("PRAGMA synchronous = FULL")
        # Deleted bytes are overwritten. Copies of rows that were moved between pages remain, which is why a deletion
        # ends with VACUUM; its temporary data stays in memory.
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        return connection
    except BaseException as error:
        connection.close()
        code, log = getattr(error, "sqlite_errorcode", 0), path.with_name(f"{path.name}-wal")
        is_read_only = code & 0xFF in _READ_ONLY_CODES or code in _SHARED_MEMORY_CODES
        # WAL mode needs a writable directory with free space; a file without a log can be read as it is.
        if not is_read_only or (log.exists() and log.stat().st_size):
            raise
    return _connect_file(path, "mode=ro&immutable=1", timeout_s)


def _connect_file(path: Path, mode: str, timeout_s: float) -> sqlite3.Connection:
    location = f"file:{quote(path.absolute().as_posix())}?{mode}"
    return sqlite3.connect(location, uri=True, timeout=timeout_s, isolation_level=None, check_same_thread=False)


# Registry files that are not in use: backups, and the replacement of a damaged file.


def read_file_checksum(file: Path) -> str | None:
    """The checksum stored in a copy, without verifying its rows; None if it cannot be read."""
    if is_irregular(file):
        return None
    try:
        with closing(_connect_file(file, "mode=ro&immutable=1", 0.0)) as connection:
            return registry_schema.read_checksum(connection)
    except (sqlite3.Error, TypeError, UnicodeDecodeError):  # a damaged file may yield any value
        return None


def delete_wikis(file: Path, wiki_ids: Collection[str]) -> bool:
    """Delete every byte of these wikis from a copy, and return whether it contained any."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        transaction = registry_schema.RegistryTransaction(connection)
        for wiki_id in wiki_ids:
            for table, column in (("wikis", "id"), ("hosts", "wiki_id"), ("keys", "wiki_id")):
                transaction.delete(table, column, wiki_id)
            transaction.delete("marks", "name", registry_schema.REPOSITORY_MARK + wiki_id)
        transaction.write_checksum()
        connection.execute("COMMIT")
        if transaction.has_deletions:
            connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return transaction.has_deletions


def replace_file(path: Path, rows: registry_schema.RegistryRows) -> str | None:
    """Replace the registry by these rows; returns the name under which the old file is kept.

    Until the last step there is an empty file in its place, which is refused as damaged: the old file without its log
    might be outdated and accept a revoked key.
    """
    with _open_draft(path) as draft:
        write_file(draft, rows)
        quarantined_as = _quarantine_file(path)
        ChecksumFile(path).write(registry_schema.compute_checksum(rows))
        draft.replace(path)
        fsync_path(path.parent)
    return quarantined_as


def write_file(file: Path, rows: registry_schema.RegistryRows) -> None:
    """Create a registry with these rows in a new or empty file."""
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        registry_schema.create_tables(connection)
        connection.execute("BEGIN")
        transaction = registry_schema.RegistryTransaction(connection)
        transaction.replace_all(rows)
        transaction.write_checksum()
        connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    fsync_path(file)


def _quarantine_file(path: Path) -> str | None:
    """Rename the registry and put an empty file in its place; returns the new name."""
    name = make_quarantine_name(path.name)
    if not os.path.lexists(path):
        return None
    if is_irregular(path):
        path.rename(path.with_name(name))
    else:
        os.link(path, path.with_name(name))
    empty = make_draft_path(path)
    empty.touch(0o600)
    empty.replace(path)
    # SQLite must not apply the log of one file to another.
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(path.with_name(name + suffix))
    return name
