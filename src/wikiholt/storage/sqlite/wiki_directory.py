"""A lock that keeps writing to one process, and one thread in it; the kernel frees it when its holder dies."""

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from wikiholt.errors import Busy, IndexMissing, StorageError
from wikiholt.regular_files import open_lock, open_regular, read_regular

_LOCK_POLL_S = 0.02


@contextmanager
def lock_file(file: Path, timeout: float) -> Iterator[None]:
    """Hold the lock of this file; raises Busy when another holds it for longer than the timeout."""
    try:
        descriptor = open_lock(file)
    except OSError as error:
        raise StorageError(
            f"the writer's lock cannot be made ({error.strerror})", hint="check the data directory's permissions"
        ) from error
    try:
        _acquire(descriptor, timeout)
        if not os.fstat(descriptor).st_nlink:
            # Whoever held it before removed the wiki: writing now would bring back what was to be gone.
            raise IndexMissing("this wiki was removed while waiting for its index", hint="run `wikiholt list`")
        yield
    finally:
        os.close(descriptor)


def is_locked(file: Path) -> bool:
    """Whether somebody holds the lock of this file now."""
    try:
        descriptor = open_regular(file)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _acquire(descriptor: int, timeout: float) -> None:
    until = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise Busy(
                    "another process is writing this wiki's index", hint="wait for it to finish, or raise lock.timeout"
                ) from None
            time.sleep(_LOCK_POLL_S)
        else:
            return


# Small texts beside a wiki's index, and the desk of whoever works on it: files in the wiki's own directory. The
# kernel frees the desk of a process that dies: what lies on a desk where nobody sits counts for nothing.


TEMPORARY_NOTE = re.compile(r"[a-z]+\.json\.[0-9a-f]{8}")
"""Names of notes that were not finished."""
_ACTIVITY_FILE = "activity.json"
_MAX_ACTIVITY_BYTES = 4096
_LOCK_TRIES = 5
"""Who reads a note on a desk holds the desk for an instant."""


def read_note(directory: Path, name: str) -> str | None:
    """The note of that name, or None."""
    try:
        return read_regular(directory / f"{name}.json").decode("utf-8")
    except (OSError, ValueError):
        return None


def write_note(directory: Path, name: str, text: str, *, create: bool) -> None:
    """Keep a note, whole or not at all; without `make` a directory that is gone is left so, for the wiki is too."""
    draft = directory / f"{name}.json.{secrets.token_hex(4)}"
    try:
        if create:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not directory.exists():
            return
        with draft.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(directory / f"{name}.json")
    except OSError as error:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise StorageError(
            f"the data directory cannot be written ({error.strerror or error})",
            hint="check free disk space and the directory's permissions",
        ) from error


@contextmanager
def lock_activity(directory: Path) -> Iterator[Callable[[str], None]]:
    """Sit down at the desk; raises Busy where another sits, and StorageRefused."""
    file = directory / _ACTIVITY_FILE
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = open_lock(file)
    except OSError as error:
        raise StorageError(
            f"the wiki's directory cannot be written ({error.strerror})", hint="check the data directory's permissions"
        ) from error

    def leave(text: str) -> None:
        note = text.encode()
        with suppress(OSError):
            os.pwrite(descriptor, note, 0)
            os.ftruncate(descriptor, len(note))

    try:
        if not _try_lock(descriptor, fcntl.LOCK_EX, _LOCK_TRIES) or not os.fstat(descriptor).st_nlink:
            raise Busy("another process is at work on this wiki", hint="wait for it to finish")
        try:
            yield leave
        finally:
            file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def read_activity(directory: Path) -> str | None:
    """The note of whoever sits at the desk; None when nobody does, empty when nothing was noted yet."""
    try:
        descriptor = open_regular(directory / _ACTIVITY_FILE)
    except OSError:
        return None
    try:
        if _try_lock(descriptor, fcntl.LOCK_SH, 1):
            return None
        return os.pread(descriptor, _MAX_ACTIVITY_BYTES, 0).decode()
    except (OSError, ValueError):
        return None
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, operation: int, tries: int) -> bool:
    for left in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01 if left else 0)
        else:
            return True
    return False
