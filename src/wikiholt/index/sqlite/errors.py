"""Translation of SQLite and file system errors to the error tree."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from wikiholt.errors import Busy, IndexUnavailable, StorageError
from wikiholt.index.rows import describe_error, make_corrupt_error

_BUSY_CODES = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_STORAGE_ERROR_CODES = {
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN),
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOLFS),
}
_TRANSIENT_CODES = {
    *(sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_SCHEMA, sqlite3.SQLITE_TOOBIG),
    *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_MISUSE, sqlite3.SQLITE_RANGE),
}
_LIMIT_MESSAGES = ("too large", "too many")
_PROGRAMMING_ERRORS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.NotSupportedError)


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate sqlite3 errors to IndexUnavailable, IndexCorrupt, StorageError or Busy."""
    try:
        yield
    except _PROGRAMMING_ERRORS:
        raise
    except sqlite3.DatabaseError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        if code in _BUSY_CODES:
            raise Busy("the index is being written by another process", hint="try again in a moment") from error
        if code in _STORAGE_ERROR_CODES:
            raise StorageError(
                f"the index cannot be written ({error})",
                hint="check free disk space and the data directory's permissions",
            ) from error
        if code in _TRANSIENT_CODES or any(words in str(error) for words in _LIMIT_MESSAGES):
            raise IndexUnavailable(
                f"the index could not run this statement ({describe_error(error)})", hint="request less at once"
            ) from error
        raise make_corrupt_error(error) from error
    except UnicodeDecodeError as error:  # an SQLite message that quotes the damaged text
        raise make_corrupt_error(error) from error


@contextmanager
def translate_os_errors() -> Iterator[None]:
    """Translate OSError to StorageError."""
    try:
        yield
    except OSError as error:
        raise make_storage_error(error) from error


def make_storage_error(error: OSError) -> StorageError:
    return StorageError(
        f"the data directory cannot be written ({error.strerror or error})",
        hint="check free disk space and the directory's permissions",
    )
