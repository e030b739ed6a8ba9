"""A directory of backup files. The file name holds everything needed to verify the backup:

20261116T001530123456Z-g3-v17-scheduled-<SHA-256 of its bytes>.sqlite

A backup is written under a temporary name and renamed after it has been verified, so an incomplete backup is never
listed. Threads and processes may use the same directory at the same time.
"""

import fcntl
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from wikiholt.errors import StorageError
from wikiholt.regular_files import fsync_path, is_irregular, move_away, open_regular

_TIME_FORMAT = "%Y%m%dT%H%M%S%fZ"
_NAME_PATTERN = re.compile(
    r"(?P<time>\d{8}T\d{12}Z)-(?P<label>[a-z0-9-]+?)-(?P<occasion>[a-z-]+)-(?P<digest>[0-9a-f]{64})\.sqlite"
)
_PENDING_PREFIX = ".making-"


@dataclass(frozen=True, slots=True)
class BackupPolicy:
    """Where backups are stored and how many are kept. Without a directory they are stored with the index, and only
    on request."""

    directory: Path | None = None
    keep_count: int = 7
    """Keep this many of the newest backups of the registry, and the newest one of this many days."""

    def list_ids(self) -> set[str]:
        """The ids of all wikis that have backups in the directory, also those whose deletion was interrupted."""
        with suppress(OSError):
            return (
                {path.name.removeprefix(".dropped-") for path in self.directory.iterdir()} if self.directory else set()
            )
        return set()


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A backup file, described by its name."""

    file: Path
    taken_at: datetime
    label: str
    reason: str
    digest: str

    @property
    def name(self) -> str:
        return self.file.stem.rpartition("-")[0]

    @property
    def size_bytes(self) -> int:
        """The size of the file; 0 if it cannot be read."""
        try:
            return self.file.stat().st_size
        except OSError:
            return 0


class PendingBackup:
    """A backup that is being written and is not listed yet."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def commit(self, label: str, reason: str, taken_at: datetime | None = None) -> BackupFile:
        """Flush the file and give it its final name, which makes it a backup, now the newest unless `taken_at` says so.

        After the clock was set back, its time is just after that of the newest one.
        """
        fsync_path(self.file)
        digest, now = _compute_digest(self.file), taken_at or datetime.now(UTC)
        newest = next(iter(BackupDirectory(self.file.parent).list_files()), None)
        if taken_at is None and newest is not None and newest.taken_at >= now:
            now = newest.taken_at + timedelta(microseconds=1)
        target = self.file.with_name(f"{now:{_TIME_FORMAT}}-{label}-{reason}-{digest}.sqlite")
        self.file.rename(target)
        fsync_path(target.parent)
        return BackupFile(target, now, label, reason, digest)


class BackupDirectory:
    """The backups in one directory, which may not exist yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self) -> None:
        """Create the directory if it does not exist."""
        with _translate_errors():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)

    @contextmanager
    def open_pending(self) -> Iterator[PendingBackup]:
        """Yield a temporary file to write a backup to. It is removed when the block ends, unless it was committed."""
        self.create()
        with _translate_errors():
            self.remove_abandoned()
            file, descriptor = self._create_pending_file()
            try:
                yield PendingBackup(file)
            finally:
                _remove_file(file)
                os.close(descriptor)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold an exclusive lock on the directory across threads and processes."""
        self.create()
        with _translate_errors():
            descriptor = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def list_files(self) -> Sequence[BackupFile]:
        """All backups, newest first. Contents are not verified."""
        try:
            files = list(self.directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _to_storage_error(error) from error
        backups = [backup for file in files if (backup := _parse_file(file)) is not None]
        return sorted(backups, key=lambda backup: (backup.taken_at, _parse_numbers(backup.label)), reverse=True)

    def find_fault(self, backup_file: BackupFile) -> str:
        """Why the backup is unusable, or an empty string. Compares the file's SHA-256 with the one in its name."""
        try:
            if _compute_digest(backup_file.file) == backup_file.digest:
                return ""
            return "its checksum does not match"
        except OSError as error:
            return f"it cannot be read ({error.strerror or error})"

    def prune(
        self, keep_count: int, keep_files: Collection[BackupFile] = (), *, keep_days: bool = True
    ) -> Sequence[BackupFile]:
        """Remove all but the newest `keep_count` and `keep_files`, and with `keep_days` the newest of each of
        `keep_count` days."""
        backups = self.list_files()
        newest_by_day: dict[str, BackupFile] = {}
        for backup in backups if keep_days else ():
            newest_by_day.setdefault(f"{backup.taken_at:%Y%m%d}", backup)
        kept = (*list(newest_by_day.values())[:keep_count], *backups[:keep_count], *keep_files)
        kept_files = {backup.file for backup in kept}
        removed = [backup for backup in backups if backup.file not in kept_files]
        for backup in removed:
            with _translate_errors():
                _remove_file(backup.file)
        return removed

    def delete_all(self) -> Sequence[str]:
        """Delete the directory and return the names of the deleted files."""
        trash = self.directory.with_name(f".dropped-{self.directory.name}")
        with _translate_errors():
            names = sorted(file.name for file in self.directory.glob("*") if not file.is_dir())
            if trash.exists():
                shutil.rmtree(trash)
            # Rename first, so that a backup being written now cannot appear afterwards.
            with suppress(FileNotFoundError):
                self.directory.rename(trash)
                shutil.rmtree(trash)
        return names

    def _create_pending_file(self) -> tuple[Path, int]:
        """Create a locked temporary file. An unlocked temporary file was abandoned by its process."""
        while True:
            file = self.directory / f"{_PENDING_PREFIX}{secrets.token_hex(8)}.sqlite"
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if file.exists():
                return file, descriptor
            os.close(descriptor)  # another process removed the file before it was locked

    def remove_abandoned(self) -> None:
        """Remove temporary files of processes that died."""
        for file in self.directory.glob(f"{_PENDING_PREFIX}*.sqlite"):
            with suppress(OSError), os.fdopen(open_regular(file), "rb") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove_file(file)


def _parse_file(file: Path) -> BackupFile | None:
    match = _NAME_PATTERN.fullmatch(file.name)
    if match is None:
        return None
    try:
        taken_at = datetime.strptime(match["time"], _TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None
    return BackupFile(file, taken_at, match["label"], match["occasion"], match["digest"])


def _parse_numbers(label: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", label))


def _compute_digest(file: Path) -> str:
    with os.fdopen(open_regular(file), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _remove_file(file: Path) -> None:
    for suffix in ("", "-wal", "-shm", "-journal"):
        part = file.with_name(file.name + suffix)
        if is_irregular(part):
            move_away(part)
        else:
            part.unlink(missing_ok=True)


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _to_storage_error(error) from error


def _to_storage_error(error: OSError) -> StorageError:
    return StorageError(
        f"the backups' directory cannot be used ({error.strerror or error})",
        hint="check free disk space and the directory's permissions; backup.directory chooses another",
    )
