"""SQLite's errors as errors of ours."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from wikiholt.errors import Busy, IndexCorrupt, IndexFault, StorageRefused

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_REFUSED = {
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS),
}
_PASSING = {
    *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG),
    *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE),
}
_TOO_MUCH = ("too large", "too many")
_OURS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.NotSupportedError)


@contextmanager
def translated() -> Iterator[None]:
    """Raise the error of the tree that says what an sqlite3 error means for a wiki's index."""
    try:
        yield
    except _OURS:
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _BUSY:
            raise Busy("the index is being written by another process", hint="try again in a moment") from error
        if code in _REFUSED:
            raise StorageRefused(
                f"the index cannot be written ({error})",
                hint="check free disk space and the data directory's permissions",
            ) from error
        if code in _PASSING or any(words in str(error) for words in _TOO_MUCH):
            raise IndexFault(f"the index could not do this ({reason(error)})", hint="ask for less at once") from error
        raise corrupt(error) from error
    except UnicodeDecodeError as error:  # a message of SQLite that quotes the damage
        raise corrupt(error) from error


@contextmanager
def stored() -> Iterator[None]:
    """Raise StorageRefused for what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise StorageRefused(
            f"the data directory cannot be written ({error.strerror or error})",
            hint="check free disk space and the directory's permissions",
        ) from error


def corrupt(error: Exception) -> IndexCorrupt:
    """The error for a file that does not hold what was written; it never quotes what the file holds."""
    return IndexCorrupt(
        f"the index file is damaged ({reason(error)})", hint="run `wikiholt sync` to build it again from git"
    )


def reason(error: Exception) -> str:
    """What an error says, without the page's text that Python's sqlite3 puts into some: messages end up in logs."""
    text = str(error)
    return "text that is not UTF-8" if "decode" in text.lower() else text
