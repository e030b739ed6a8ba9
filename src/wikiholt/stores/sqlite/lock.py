"""A lock that keeps writing to one process, and one thread in it; the kernel frees it when its holder dies."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wikiholt.errors import Busy, IndexMissing, StorageError
from wikiholt.plainfiles import open_lock, open_regular

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
