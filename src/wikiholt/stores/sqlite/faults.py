"""SQLite's errors as errors of ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from wikiholt.errors import Busy, IndexCorrupt, StorageRefused

_REFUSED = ("readonly", "disk is full", "full", "unable to open", "disk i/o error")


@contextmanager
def translated() -> Iterator[None]:
    """Raise the error of the tree that says what an sqlite3 error means for a wiki's index."""
    try:
        yield
    except sqlite3.OperationalError as error:
        text = str(error).lower()
        if "locked" in text or "busy" in text:
            raise Busy("the index is being written by another process", hint="try again in a moment") from error
        if any(word in text for word in _REFUSED):
            raise StorageRefused(
                f"the index cannot be written ({error})",
                hint="check free disk space and the data directory's permissions",
            ) from error
        if "malformed" in text or "no such table" in text or "no such column" in text:
            raise _corrupt(error) from error
        raise
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError | sqlite3.InterfaceError):
            raise
        raise _corrupt(error) from error


def _corrupt(error: sqlite3.Error) -> IndexCorrupt:
    return IndexCorrupt(f"the index file is damaged ({error})", hint="run `wikiholt sync` to build it again from git")
