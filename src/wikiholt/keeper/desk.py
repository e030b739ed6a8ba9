"""A wiki's desk: whoever syncs or reindexes it sits there and says how far it is, for other processes to read.

The kernel frees the desk of a process that dies: what lies on a desk where nobody sits counts for nothing.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from wikiholt.errors import Busy, StorageRefused
from wikiholt.keeper.entries import Activity

_NAME = "activity.json"
_EVERY = 1.0
"""Seconds between two notes."""
_TRIES = 5
"""Who reads a note holds the desk for an instant."""


class Desk:
    """A desk one sits at. Telling never fails: how far it is, is not worth a sync."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._told = 0.0

    def tell(self, activity: Activity) -> None:
        """Leave a note, once a second at most."""
        now = time.monotonic()
        if now - self._told < _EVERY:
            return
        self._told = now
        note = json.dumps({**asdict(activity), "since": activity.since.isoformat()}).encode()
        try:
            os.pwrite(self._descriptor, note, 0)
            os.ftruncate(self._descriptor, len(note))
        except OSError:
            return


@contextmanager
def sitting(directory: Path) -> Iterator[Desk]:
    """Sit down at the desk of the wiki whose directory this is; raises Busy where another sits, and StorageRefused."""
    file = directory / _NAME
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StorageRefused(
            f"the wiki's directory cannot be written ({error.strerror})", hint="check the data directory's permissions"
        ) from error
    try:
        if not _taken(descriptor, fcntl.LOCK_EX, _TRIES) or not os.fstat(descriptor).st_nlink:
            raise Busy("another process is at work on this wiki", hint="wait for it to finish")
        try:
            yield Desk(descriptor)
        finally:
            file.unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def read_activity(directory: Path) -> Activity | None:
    """What is being done for the wiki by whichever process; None when nothing is, or nothing was noted yet."""
    try:
        descriptor = os.open(directory / _NAME, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if _taken(descriptor, fcntl.LOCK_SH, 1):
            return None
        note = json.loads(os.pread(descriptor, 4096, 0))
        return Activity(**{**note, "since": datetime.fromisoformat(note["since"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    finally:
        os.close(descriptor)


def _taken(descriptor: int, how: int, tries: int) -> bool:
    for left in reversed(range(tries)):
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.01 if left else 0)
        else:
            return True
    return False
