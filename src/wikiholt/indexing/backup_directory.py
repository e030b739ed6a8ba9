"""A directory of copies. One file is one copy, and its name says all that must be known to trust it:

20261116T001530123456Z-g3-v17-scheduled-<SHA-256 of its bytes>.sqlite

A copy is written under a name that does not count and renamed once it has been verified, so that there is no moment at
which half a copy looks like one. Threads and processes may use the same shelf at once.
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
from datetime import UTC, datetime
from pathlib import Path

from wikiholt.errors import StorageError
from wikiholt.regular_files import is_irregular, move_away, open_regular

_TIME_FORMAT = "%Y%m%dT%H%M%S%fZ"
_NAME_PATTERN = re.compile(
    r"(?P<time>\d{8}T\d{12}Z)-(?P<label>[a-z0-9-]+?)-(?P<occasion>[a-z-]+)-(?P<digest>[0-9a-f]{64})\.sqlite"
)
_PENDING_PREFIX = ".making-"


@dataclass(frozen=True, slots=True)
class BackupFile:
    """A copy on the shelf, by its name."""

    file: Path
    taken_at: datetime
    label: str
    reason: str
    digest: str

    @property
    def name(self) -> str:
        return self.file.stem.rpartition("-")[0]


class PendingBackup:
    """A copy that is being made, and does not count yet."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def commit(self, label: str, reason: str, taken_at: datetime | None = None) -> BackupFile:
        """Give it its name: from now on it counts."""
        with self.file.open("rb") as copy:
            os.fsync(copy.fileno())
        digest, now = _compute_digest(self.file), taken_at or datetime.now(UTC)
        place = self.file.with_name(f"{now:{_TIME_FORMAT}}-{label}-{reason}-{digest}.sqlite")
        self.file.rename(place)
        _sync_directory(place.parent)
        return BackupFile(place, now, label, reason, digest)


class BackupDirectory:
    """The copies in one directory, which need not be there yet."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @contextmanager
    def open_pending(self) -> Iterator[PendingBackup]:
        """A place to write a copy to; whatever was not kept when the block ends is removed."""
        with _translate_errors():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.remove_abandoned()
            file, held = self._create_pending_file()
            try:
                yield PendingBackup(file)
            finally:
                _remove_file(file)
                os.close(held)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Have the shelf to oneself among all who ask for that, in this process and others."""
        with _translate_errors():
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            held = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def list_files(self) -> Sequence[BackupFile]:
        """What is there by name, newest first."""
        try:
            files = list(self.directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise _to_storage_error(error) from error
        found = [kept for file in files if (kept := _parse_file(file)) is not None]
        return sorted(found, key=lambda kept: (kept.taken_at, _parse_numbers(kept.label)), reverse=True)

    def find_fault(self, backup_file: BackupFile) -> str:
        """What is wrong with a copy, or nothing: nothing is, if its bytes are those that were verified."""
        try:
            return (
                ""
                if _compute_digest(backup_file.file) == backup_file.digest
                else "its bytes are not those that were written"
            )
        except OSError as error:
            return f"it cannot be read ({error.strerror or error})"

    def prune(self, keep_count: int, keep_files: Collection[BackupFile] = ()) -> Sequence[BackupFile]:
        """Remove all but the newest `keep`, the newest of each of so many days, and those named."""
        every = self.list_files()
        newest: dict[str, BackupFile] = {}
        for kept in every:
            newest.setdefault(f"{kept.taken_at:%Y%m%d}", kept)
        stay = {kept.file for kept in (*list(newest.values())[:keep_count], *every[:keep_count], *keep_files)}
        gone = [kept for kept in every if kept.file not in stay]
        for kept in gone:
            with _translate_errors():
                _remove_file(kept.file)
        return gone

    def delete_all(self) -> Sequence[str]:
        """Remove every byte, and say which files that were."""
        going = self.directory.with_name(f".dropped-{self.directory.name}")
        with _translate_errors():
            names = sorted(file.name for file in self.directory.glob("*") if not file.is_dir())
            if going.exists():
                shutil.rmtree(going)
            # Renamed first, so that a copy that is just being made cannot arrive any more.
            with suppress(FileNotFoundError):
                self.directory.rename(going)
                shutil.rmtree(going)
        return names

    def _create_pending_file(self) -> tuple[Path, int]:
        """A new file that is held: whoever finds a draft that is not held knows that its maker is gone."""
        while True:
            file = self.directory / f"{_PENDING_PREFIX}{secrets.token_hex(8)}.sqlite"
            held = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(held, fcntl.LOCK_EX)
            if file.exists():
                return file, held
            os.close(held)  # somebody swept in the instant in which it was there and not held

    def remove_abandoned(self) -> None:
        """Remove drafts whose maker is gone."""
        for file in self.directory.glob(f"{_PENDING_PREFIX}*.sqlite"):
            with suppress(OSError), os.fdopen(open_regular(file), "rb") as left:
                fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
    with os.fdopen(open_regular(file), "rb") as copy:
        return hashlib.file_digest(copy, "sha256").hexdigest()


def _remove_file(file: Path) -> None:
    for ending in ("", "-wal", "-shm", "-journal"):
        each = file.with_name(file.name + ending)
        if is_irregular(each):
            move_away(each)
        else:
            each.unlink(missing_ok=True)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
