"""Translation of psycopg errors into Wikiholt errors.

No message quotes the server: its text can contain host names, roles and row values.
"""

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
    LoginRefused,
    StorageError,
    TooManyConnections,
    WikiholtError,
)

_LOG = logging.getLogger(__name__)
RETRY_AFTER_S = 2.0
_CONNECTION_LIMIT_TEXTS = (
    "too many clients",
    "too many connections",
    "remaining connection slots",
    "no more connections allowed",  # PgBouncer
)


@contextmanager
def translate_errors(connection: psycopg.Connection[tuple[object, ...]] | None = None) -> Iterator[None]:
    """Translate psycopg errors raised in the block into Wikiholt errors."""
    try:
        yield
    except psycopg.Error as error:
        lost = connection is not None and connection.pgconn.status == ConnStatus.BAD
        translated = _to_error(error, lost=lost)
        if translated is None:
            raise
        raise translated from error


def make_unavailable_error(error: Exception | None = None) -> DatabaseUnavailable:
    """Make the error for an unreachable database. The original message goes to the log only."""
    if error is not None:
        _LOG.info("a database cannot be reached: %s", str(error).strip())
    return DatabaseUnavailable(
        "the database cannot be reached", retry_after=RETRY_AFTER_S, hint="try again in a moment; no data is lost"
    )


def make_unconfirmed_error() -> DatabaseUnavailable:
    _LOG.warning("no standby has confirmed a transaction; check the replication of the database")
    return DatabaseUnavailable(
        "no standby has confirmed the change, which may be kept or lost",
        retry_after=RETRY_AFTER_S,
        hint="try again in a moment",
    )


def make_connections_error() -> TooManyConnections:
    return TooManyConnections(
        "too many connections: the server accepts no more",
        retry_after=RETRY_AFTER_S,
        hint="raise max_connections of the server or lower postgres.connections",
    )


def make_login_error() -> LoginRefused:
    return LoginRefused(
        "the database refuses the login of this wiki's role",
        retry_after=RETRY_AFTER_S,
        hint="run `wikiholt doctor --fix`; if that does not help, allow password logins in pg_hba.conf",
    )


def is_connection_limit(error: psycopg.Error) -> bool:
    """Whether a server or a role has no connection left. libpq gives no code, only the text."""
    text = str(error).lower()
    return error.sqlstate == "53300" or any(part in text for part in _CONNECTION_LIMIT_TEXTS)


def is_statement_timeout(error: WikiholtError) -> bool:
    """Whether the server cancelled a statement because of its timeout."""
    return isinstance(error.__cause__, psycopg.errors.QueryCanceled)


def make_foreign_state_error() -> IndexCorrupt:
    return IndexCorrupt(
        "the index has lost its state, or belongs to another wiki", hint="run `wikiholt sync` to rebuild it"
    )


def make_missing_error() -> IndexMissing:
    return IndexMissing("this wiki has no index yet", hint="run `wikiholt sync`")


def _to_error(error: psycopg.Error, *, lost: bool) -> WikiholtError | None:
    """The Wikiholt error, or None for a programming error of the caller."""
    code = error.sqlstate
    if lost or (code is None and isinstance(error, psycopg.OperationalError)):
        return make_unavailable_error(error)
    if code is None:
        return None
    for prefixes, make_error in _ERRORS_BY_CODE:
        if code.startswith(prefixes):
            return make_error(error)
    _LOG.warning("the database rejected a statement (code %s)", code)
    return IndexUnavailable(f"the database rejected a statement (code {code})", hint="see the log of the service")


_ERRORS_BY_CODE: tuple[tuple[tuple[str, ...], Callable[[psycopg.Error], WikiholtError]], ...] = (
    (("57014",), lambda _: IndexUnavailable("the database took too long", hint="request less at once")),
    (("53300",), lambda _: make_connections_error()),
    # 25P03, 25P04: the server ended a session that was too long in a transaction. 25006: it is a standby.
    (("08", "57P", "25P03", "25P04", "25006"), make_unavailable_error),
    (
        ("531", "532", "534", "58"),
        lambda error: StorageError(
            f"the database does not accept writes (code {error.sqlstate})",
            hint="check its free disk space and its settings",
        ),
    ),
    (("40001",), lambda _: Busy("another process is changing the index", hint="try again in a moment")),
    (
        ("40P01", "55P03"),
        lambda _: LockTimeout("another process holds a lock on this wiki's index", hint="try again in a moment"),
    ),
    (
        ("XX001", "XX002", "22P02"),
        lambda error: IndexCorrupt(
            f"the database reports damage (code {error.sqlstate})", hint="run `wikiholt sync` to rebuild it"
        ),
    ),
    # 42703 is a missing column: a schema of a layout that cannot be migrated. The next sync replaces it.
    (("42P01", "42703", "3F000", "42501"), lambda _: make_missing_error()),
)
