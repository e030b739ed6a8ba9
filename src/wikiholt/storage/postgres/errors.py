"""PostgreSQL's errors as errors of ours. None quotes the server: its words name hosts, roles and, at times, rows."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg.pq import ConnStatus

from wikiholt.errors import (
    Busy,
    DatabaseUnavailable,
    IndexCorrupt,
    IndexMissing,
    IndexUnavailable,
    LockTimeout,
    StorageError,
    WikiholtError,
)

_LOG = logging.getLogger(__name__)
RETRY_AFTER_S = 2.0


@contextmanager
def translate_errors(connection: psycopg.Connection[tuple[object, ...]] | None = None) -> Iterator[None]:
    """Raise the error of the tree that says what a psycopg error means for a wiki's index."""
    try:
        yield
    except psycopg.Error as error:
        lost = connection is not None and connection.pgconn.status == ConnStatus.BAD
        known = _to_error(error, lost=lost)
        if known is None:
            raise
        raise known from error


def make_unavailable_error(error: Exception | None = None) -> DatabaseUnavailable:
    """The error for a database that cannot be reached; what the server said goes to the operator's log."""
    if error is not None:
        _LOG.info("a database cannot be reached: %s", str(error).strip())
    return DatabaseUnavailable(
        "the database cannot be reached now", retry_after=RETRY_AFTER_S, hint="try again in a moment; nothing is lost"
    )


def is_statement_timeout(error: WikiholtError) -> bool:
    """Whether the server ended a statement that took too long."""
    return isinstance(error.__cause__, psycopg.errors.QueryCanceled)


def make_missing_error() -> IndexMissing:
    return IndexMissing("this wiki has no index yet", hint="run `wikiholt sync`")


def _to_error(error: psycopg.Error, *, lost: bool) -> WikiholtError | None:
    """None for what is a fault of the caller, not of the database."""
    code = error.sqlstate
    if lost or (code is None and isinstance(error, psycopg.OperationalError)):
        return make_unavailable_error(error)
    if code is None:
        return None
    for beginnings, made in _ERRORS_BY_CODE:
        if code.startswith(beginnings):
            return made(error)
    _LOG.warning("the database refused a statement (code %s)", code)
    return IndexUnavailable(f"the database could not do this (code {code})", hint="see the log of the service")


_ERRORS_BY_CODE: tuple[tuple[tuple[str, ...], Callable[[psycopg.Error], WikiholtError]], ...] = (
    (("57014",), lambda _: IndexUnavailable("the database took too long over this", hint="ask for less at once")),
    (("08", "57P", "53300"), make_unavailable_error),
    (
        ("531", "532", "534", "58", "25006"),
        lambda error: StorageError(
            f"the database takes no writes now (code {error.sqlstate})",
            hint="check its free disk space and its settings",
        ),
    ),
    (("40001",), lambda _: Busy("the index is being changed by another", hint="try again in a moment")),
    (
        ("40P01", "55P03"),
        lambda _: LockTimeout("another holds a lock on this wiki's index", hint="try again in a moment"),
    ),
    (
        ("XX001", "XX002"),
        lambda error: IndexCorrupt(
            f"the database found damage (code {error.sqlstate})", hint="run `wikiholt sync` to build it again"
        ),
    ),
    (("42P01", "3F000", "42501"), lambda _: make_missing_error()),
)
