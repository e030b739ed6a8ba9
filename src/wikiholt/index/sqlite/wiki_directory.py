"""The directory of one wiki: its generations, the write lock, notes, and the activity lock with its progress text.

The file CURRENT names the published generation. If it is lost, damaged, or names a missing file, the newest generation
that has a revision counts as published: a lost pointer never discards a good index. An unpublished generation has a
small file beside it that records its origin, so that a sync after a crash knows whether to resume it.

The kernel releases the locks of a process that dies. A progress text counts only while a process holds its lock.
"""

import fcntl
import os
import re
import secrets
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, InvalidSlug, StorageError, WikiholtError
from wikiholt.index.sqlite import integrity, schema
from wikiholt.index.sqlite.connections import open_connection, translate_errors, translate_os_errors
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.packed_vectors import unpack
from wikiholt.index.sqlite.vector_file import VectorFileHeader
from wikiholt.regular_files import (
    NotRegularFile,
    fsync_path,
    open_lock,
    open_regular,
    read_regular,
    write_atomically,
)

_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_LOCK_POLL_S = 0.02
TEMPORARY_NOTE = re.compile(r"[a-z]+\.json\.[0-9a-f]{8}")
"""Names of notes that are being written."""
_ACTIVITY_FILE = "activity.json"
_MAX_ACTIVITY_BYTES = 4096
_ACTIVITY_LOCK_TRIES = 5
"""Reading a progress text holds the activity lock for a moment."""
_DIGITS = 6
_NUMBER_PATTERN = re.compile(r"(?:^|-)g(\d{6})[.-]")
_ORIGIN_SUFFIX = ".from"


class GenerationOrigin(StrEnum):
    """What an unpublished generation is built from."""

    SCRATCH = "nothing"
    PREVIOUS = "before"
    """Reuses vectors of the published generation."""
    BACKUP = "backup"


class GenerationFiles:
    """The generation files in one wiki's directory, which may not exist."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def get_file(self, number: int) -> Path:
        return self._directory / f"g{number:0{_DIGITS}d}.sqlite"

    def get_name(self, number: int) -> str:
        """The file as a string, which is several times faster."""
        return f"{self._directory}/g{number:0{_DIGITS}d}.sqlite"

    def list_numbers(self) -> list[int]:
        files = self._directory.glob("g??????.sqlite")
        return sorted(int(file.stem[1:]) for file in files if file.stem[1:].isdigit())

    def find_published(self) -> int | None:
        """The published generation's number. Its file is missing only if no other generation can replace it."""
        current = self._read_current()
        while current is None or not os.path.exists(self.get_name(current)):  # noqa: PTH110 - called for every wiki
            reread = self._read_current()
            if reread == current:
                return self._find_replacement(current)
            current = reread  # another generation was published, and this one removed, between the two reads
        return current

    def recover_published(self) -> bool:
        """Rewrite CURRENT if it does not name the published generation, and return whether it did. For the writer."""
        published = self.find_published()
        if published is None or published == self._read_current() or not self.get_file(published).exists():
            return False
        self.publish(published)
        return True

    def _is_usable(self, number: int) -> bool:
        """Whether the generation opens and has a revision."""
        try:
            index = SqliteIndex(self.get_file(number), self._directory.name)
        except WikiholtError:
            return False
        try:
            return index.get_state().revision is not None
        except WikiholtError:
            return False
        finally:
            index.close()

    def find_unused_number(self) -> int:
        """A number that no file here has, quarantined or not: a cache of one index must never match another."""
        names = (file.name for file in self._directory.rglob("*"))
        return max((int(match[1]) for name in names if (match := _NUMBER_PATTERN.search(name))), default=0) + 1

    def write_origin(self, number: int, origin: GenerationOrigin) -> None:
        """Record the origin of a generation that is about to be built or resumed."""
        self._get_origin_file(number).write_text(origin)

    def read_origin(self, number: int) -> GenerationOrigin | None:
        """The recorded origin; None if unknown."""
        try:
            return GenerationOrigin(read_regular(self._get_origin_file(number)).decode())
        except (OSError, ValueError):
            return None

    def remove_leftovers(self) -> None:
        """Remove origins of published generations, unpublished imported backups, drafts, and files without an index.

        Requires the write lock.
        """
        published = self.find_published()
        for file in list(self._directory.glob(f"g??????.sqlite{_ORIGIN_SUFFIX}")):
            number = int(file.name[1 : 1 + _DIGITS])
            if published is not None and number > published and self.read_origin(number) is GenerationOrigin.BACKUP:
                self.remove(number)
            elif published is None or number <= published or not self.get_file(number).exists():
                file.unlink(missing_ok=True)
        for file in self._list_parts():
            if not self.get_file(int(file.name[1 : 1 + _DIGITS])).exists() or _is_abandoned_draft(file):
                file.unlink(missing_ok=True)

    def publish(self, number: int) -> None:
        """Publish a generation atomically."""
        current = self._directory / "CURRENT"
        for leftover in current.parent.glob("CURRENT.*"):
            leftover.unlink(missing_ok=True)
        write_atomically(current, current.with_name(f"CURRENT.{os.getpid()}"), f"{number}\n".encode())
        fsync_path(current.parent)
        with suppress(OSError):
            self._get_origin_file(number).unlink(missing_ok=True)

    def import_backup(self, copy: Path) -> int:
        """Create a generation from a copy of this wiki. Its file appears only once it is complete and verified."""
        number = self.find_unused_number()
        self.write_origin(number, GenerationOrigin.BACKUP)
        file = self.get_file(number)
        draft = schema.get_draft_file(file)
        schema.remove_draft(draft)
        try:
            shutil.copyfile(copy, draft)
            with closing(open_connection(draft)) as db, translate_errors():
                _, recipe = schema.read_header(db)
                schema.require_owner(db, self._directory.name)
                schema.write_generation(db, number, recipe)
                faults = integrity.find_faults(db)
                if faults:
                    raise IndexCorrupt(f"the backup is damaged: {faults[0]}", hint="choose an earlier one")
                unpack(db, file, VectorFileHeader(self._directory.name, number, recipe.dimensions))
                db.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 1)  # VACUUM attaches the file it writes
                db.execute("VACUUM")
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except BaseException:
            schema.remove_draft(draft)
            self.remove(number)
            raise
        fsync_path(draft)
        draft.rename(file)
        fsync_path(file.parent)
        return number

    def remove(self, number: int) -> None:
        """Remove a generation with its caches; its origin file is removed last."""
        for pattern in (f"g{number:06d}.keywords*", f"g{number:06d}.sqlite*", f"g{number:06d}-*"):
            for file in sorted(self._directory.glob(pattern)):
                file.unlink(missing_ok=True)

    def quarantine(self, directory: Path) -> None:
        """Move all generations to that directory."""
        for file in [*self._directory.glob("g??????.sqlite*"), *self._list_parts()]:
            file.rename(directory / file.name)
        (self._directory / "CURRENT").unlink(missing_ok=True)

    def _list_parts(self) -> list[Path]:
        """The files of vectors and keywords of all generations."""
        return [*self._directory.glob("g??????-*"), *self._directory.glob("g??????.keywords*")]

    def _read_current(self) -> int | None:
        """The number in CURRENT, or None."""
        try:
            text = read_regular(f"{self._directory}/CURRENT").decode()
        except (FileNotFoundError, NotADirectoryError, NotRegularFile, UnicodeDecodeError):
            return None
        except OSError as error:
            raise StorageError(
                f"the data directory cannot be read ({error.strerror})", hint="check its permissions and the disk"
            ) from error
        number = text.strip()
        return int(number) if number.isascii() and number.isdigit() and len(number) <= _DIGITS else None

    def _find_replacement(self, current: int | None) -> int | None:
        """The published generation if CURRENT does not lead to a file."""
        numbers = self.list_numbers()
        usable = next((number for number in reversed(numbers) if self._is_usable(number)), None)
        if usable is not None or current is not None:
            return current if usable is None else usable
        return numbers[0] if numbers else None

    def _get_origin_file(self, number: int) -> Path:
        file = self.get_file(number)
        return file.with_name(file.name + _ORIGIN_SUFFIX)


def _is_abandoned_draft(file: Path) -> bool:
    """Whether this is a draft that no process locks, as one that writes keywords does."""
    if not file.name.endswith(".writing"):
        return False
    try:
        with os.fdopen(open_regular(file), "rb") as draft:
            fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


# ── locks and notes ──


def validate_wiki_id(wiki_id: str) -> None:
    """Raise InvalidSlug if a path or schema name must not be made from this id."""
    if not _WIKI_ID.fullmatch(wiki_id):
        raise InvalidSlug("this is not a wiki id", hint="ids come from the registry, never from input")


def list_wiki_directories(root: Path) -> list[str]:
    """List the ids of wikis that have a directory below the root."""
    if not root.is_dir():
        return []
    return sorted(entry.name for entry in root.iterdir() if entry.is_dir() and _WIKI_ID.fullmatch(entry.name))


def list_files(directory: Path) -> list[str]:
    """List the relative paths of all files in a directory."""
    return sorted(str(file.relative_to(directory)) for file in directory.rglob("*") if not file.is_dir())


def get_directory_bytes(directory: Path) -> int:
    """The size of all files in a directory."""
    total = 0
    for file in directory.rglob("*"):
        with suppress(OSError):  # a writer creates and removes files meanwhile
            total += file.stat().st_size if file.is_file() else 0
    return total


@contextmanager
def lock_file(file: Path, timeout_s: float) -> Iterator[None]:
    """Hold the exclusive lock of this file, in one thread of one process. Raises Busy after the timeout."""
    try:
        descriptor = open_lock(file)
    except OSError as error:
        raise StorageError(
            f"the write lock cannot be created ({error.strerror})", hint="check the data directory's permissions"
        ) from error
    try:
        _acquire_lock(descriptor, timeout_s)
        if not os.fstat(descriptor).st_nlink:
            # The previous holder removed the wiki: writing now would bring it back.
            raise IndexMissing("this wiki was removed while waiting for its index", hint="run `wikiholt list`")
        yield
    finally:
        os.close(descriptor)


def read_note(directory: Path, name: str) -> str | None:
    """The text of a note, or None."""
    try:
        return read_regular(directory / f"{name}.json").decode("utf-8")
    except (OSError, ValueError):
        return None


def write_note(directory: Path, name: str, text: str, *, create: bool) -> None:
    """Write a note atomically. Without `create`, does nothing if the directory is gone: the wiki was removed."""
    file = directory / f"{name}.json"
    with translate_os_errors():
        if create:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not directory.exists():
            return
        write_atomically(file, directory / f"{file.name}.{secrets.token_hex(4)}", text.encode())


@contextmanager
def lock_activity(directory: Path) -> Iterator[Callable[[str], None]]:
    """Hold the activity lock; yields a function that publishes a progress text. Raises Busy or StorageError."""
    file = directory / _ACTIVITY_FILE
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_lock(file)
    except OSError as error:
        raise StorageError(
            f"the wiki's directory cannot be written ({error.strerror})", hint="check the data directory's permissions"
        ) from error

    def report(text: str) -> None:
        data = text.encode()
        with suppress(OSError):
            os.pwrite(descriptor, data, 0)
            os.ftruncate(descriptor, len(data))

    try:
        if not _try_lock(descriptor, fcntl.LOCK_EX, _ACTIVITY_LOCK_TRIES) or not os.fstat(descriptor).st_nlink:
            raise Busy("another process is working on this wiki", hint="wait for it to finish")
        try:
            yield report
        finally:
            file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def read_activity(directory: Path) -> str | None:
    """The progress text of the activity lock's holder, "" before the first; None if nobody holds the lock."""
    try:
        descriptor = open_regular(directory / _ACTIVITY_FILE)
    except OSError:
        return None
    try:
        if _try_lock(descriptor, fcntl.LOCK_SH):
            return None
        return os.pread(descriptor, _MAX_ACTIVITY_BYTES, 0).decode()
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _acquire_lock(descriptor: int, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() >= deadline:
            raise Busy(
                "another process is writing this wiki's index", hint="wait for it to finish, or raise lock.timeout"
            )
        time.sleep(_LOCK_POLL_S)


def _try_lock(descriptor: int, operation: int, tries: int = 1) -> bool:
    for tries_left in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01 if tries_left else 0)
        else:
            return True
    return False
