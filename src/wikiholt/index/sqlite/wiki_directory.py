"""The directories of wikis: the write lock, notes, and the activity lock with its progress text.

The kernel releases the locks of a process that dies. A progress text counts only while a process holds its lock.
"""

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wikiholt.errors import Busy, IndexMissing, InvalidSlug, StorageError
from wikiholt.index.sqlite.errors import translate_os_errors
from wikiholt.regular_files import open_lock, open_regular, read_regular, write_atomically

_WIKI_ID = re.compile(r"[a-z0-9]{8,64}")
_LOCK_POLL_S = 0.02
TEMPORARY_NOTE = re.compile(r"[a-z]+\.json\.[0-9a-f]{8}")
"""Names of notes that are being written."""
_ACTIVITY_FILE = "activity.json"
_MAX_ACTIVITY_BYTES = 4096
_ACTIVITY_LOCK_TRIES = 5
"""Reading a progress text holds the activity lock for a moment."""


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
