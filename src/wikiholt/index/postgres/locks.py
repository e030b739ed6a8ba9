"""Locks of the operator, and lock and statement timeouts with their counters and retries.

A lock of the operator is a row of `wikiholt.locks` in every database that holds wikis. Advisory locks are not used,
because any role of a database can take and keep any advisory lock. Creating or removing a wiki's schema, role or tables
locks a row of `wikiholt.locks`, which wiki roles cannot access.

Every session gets a lock timeout and a statement timeout at login (see `pool`). Longer operations set their own with a
constant of this module. Lock timeouts below one second are for polling: the caller retries soon and records a timeout
only when it gives up.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Literal, TypeVar

from psycopg.errors import DuplicateSchema, DuplicateTable, UniqueViolation

from wikiholt.errors import LockTimeout

if TYPE_CHECKING:
    from wikiholt.index.postgres.pool import Connection

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
Kind = Literal["lock", "statement", "connections", "login"]

OPERATOR_LOCK_TIMEOUT_S = 5.0
OPERATOR_STATEMENT_TIMEOUT_S = 60.0
WIKI_LOCK_TIMEOUT_S = 3.0
"""Shorter than the operator's: a wiki role waits only for locks in its own schema, and a search uses a connection."""
WIKI_WRITE_STATEMENT_TIMEOUT_S = 3600.0
"""For COPY of a batch of pages, or of a complete backup, into the tables of a wiki."""
MOVE_STATEMENT_TIMEOUT_S = 4 * 3600.0
"""For COPY of one table of a wiki to another database, and for counting its rows."""
INDEX_STATEMENT_TIMEOUT_S = 3600.0
"""For CREATE INDEX."""
SWEEP_LOCK_TIMEOUT_S = 2.0
LEASE_LOCK_TIMEOUT_S = 0.05
RENEW_LOCK_TIMEOUT_S = 0.2
"""Short, because one thread renews the leases of all wikis of a database and one locked wiki must not block it."""

LOCK_TRIES = 4
_FIRST_DELAY_S = 0.2
_LOG_INTERVAL_S = 60.0
_MAX_SUBJECTS = 1000


_TEXTS: dict[Kind, str] = {
    "lock": "lock timeout in PostgreSQL; retrying with back-off",
    "statement": "statement timeout in PostgreSQL; retrying with back-off",
    "connections": "too many connections: raise max_connections or lower postgres.connections",
    "login": "the server refuses the login; the next sync resets the password of the role",
}


class TimeoutCounter:
    """Counts timeouts, or refused connections, of a process by kind. Safe to use from many threads."""

    def __init__(self, kinds: Sequence[Kind] = ("lock", "statement")) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = dict.fromkeys(kinds, 0)
        self._logged: dict[str, float] = {}

    def record(self, kind: Kind, subject: str) -> None:
        """Count an event. Logs it at most once a minute per subject (a schema, a role, or the operator)."""
        now = time.monotonic()
        with self._lock:
            self._counts[kind] += 1
            if now - self._logged.get(subject, -_LOG_INTERVAL_S) < _LOG_INTERVAL_S:
                return
            if len(self._logged) >= _MAX_SUBJECTS:
                self._logged.clear()
            self._logged[subject] = now
        _LOG.warning("%s: %s", subject, _TEXTS[kind])

    @property
    def counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


def retry_lock_timeouts(attempt: Callable[[], _T]) -> _T:
    """Call an atomic `attempt`, up to LOCK_TRIES times with back-off. Raises the last LockTimeout."""
    for number in range(LOCK_TRIES - 1):
        try:
            return attempt()
        except LockTimeout:
            time.sleep(_FIRST_DELAY_S * 2**number * random.uniform(0.5, 1.5))  # noqa: S311 - only spreads the load
    return attempt()


# ── locks of the operator ────────────────────────────────────────────────────────────────────────

_CREATE = (
    "CREATE SCHEMA IF NOT EXISTS wikiholt",
    "CREATE TABLE IF NOT EXISTS wikiholt.locks (name text PRIMARY KEY)",
    # Keep names out of the planner statistics, where they would outlive their wikis.
    "ALTER TABLE wikiholt.locks ALTER name SET STATISTICS 0",
)
_ACQUIRE = "SELECT 1 FROM wikiholt.locks WHERE name = %s FOR UPDATE"
# Also waits for another transaction that has inserted the row and not committed.
_INSERT = "INSERT INTO wikiholt.locks (name) VALUES (%s) ON CONFLICT (name) DO UPDATE SET name = excluded.name"
_DROP = "DELETE FROM wikiholt.locks WHERE name = %s"


def ensure_lock_table(connection: "Connection") -> None:
    """Create the table if it is missing. Several nodes may do so at the same time."""
    if connection.execute("SELECT to_regclass('wikiholt.locks')").fetchone() != (None,):
        return
    for statement in _CREATE:
        # IF NOT EXISTS does not see an uncommitted table of another node: it waits, then fails.
        with suppress(UniqueViolation, DuplicateSchema, DuplicateTable), connection.transaction():
            connection.execute(statement)


def acquire_lock(connection: "Connection", name: str) -> None:
    """Lock a name until the end of the open transaction. Waits for the lock timeout."""
    ensure_lock_table(connection)
    if connection.execute(_ACQUIRE, (name,)).fetchone() is None:
        connection.execute(_INSERT, (name,))


def delete_lock(connection: "Connection", name: str) -> None:
    """Delete the row of a removed object, in the open transaction."""
    connection.execute(_DROP, (name,))
