"""How long statements in PostgreSQL may wait for locks and run, and how many were ended by that.

Every session has a lock timeout and a statement timeout from its login on (pool.py). Operations that take longer say so
where they begin, by a constant of this module. The lock timeouts below one second belong to polling: whoever uses them
asks again soon, and records a timeout only when giving up.

    Timeouts()                            counts for one process; safe to use from many threads
        .record(kind, subject)            count one, and log it, at most once a minute for each subject
        .counts -> dict[str, int]         by kind: lock, statement
    retry_lock_timeouts(attempt)          call it until it raises no LockTimeout, with back-off, LOCK_TRIES times
"""

import logging
import random
import time
from collections.abc import Callable
from threading import Lock
from typing import Literal, TypeVar

from wikiholt.errors import LockTimeout

_LOG = logging.getLogger(__name__)
_T = TypeVar("_T")
Kind = Literal["lock", "statement"]

OPERATOR_LOCK_TIMEOUT_S = 5.0
OPERATOR_STATEMENT_TIMEOUT_S = 60.0
WIKI_LOCK_TIMEOUT_S = 3.0
"""Shorter than the operator's: what a wiki's role waits for is in its own schema, and a search holds a connection."""
WIKI_WRITE_STATEMENT_TIMEOUT_S = 3600.0
"""For COPY of a batch of pages, or of a whole backup, into the tables of a wiki."""
MOVE_STATEMENT_TIMEOUT_S = 4 * 3600.0
"""For COPY of one table of a wiki to another database, and for counting its rows."""
UPGRADE_STATEMENT_TIMEOUT_S = 3600.0
"""For one statement of a migration, which may write a table again."""
INDEX_STATEMENT_TIMEOUT_S = 4 * 3600.0
"""For CREATE INDEX: a large HNSW index takes long."""
INDEX_LOCK_TIMEOUT_S = 30.0
"""CREATE INDEX CONCURRENTLY also waits for every older snapshot in the database."""
SWEEP_LOCK_TIMEOUT_S = 2.0
LEASE_LOCK_TIMEOUT_S = 0.05
RENEW_LOCK_TIMEOUT_S = 0.2
"""One thread renews the leases of all wikis of a database: a wiki whose notes are locked must not cost the others."""
UPGRADE_LOCK_TIMEOUT_S = 0.1

LOCK_TRIES = 4
_FIRST_DELAY_S = 0.2
_LOG_INTERVAL_S = 60.0
_MAX_SUBJECTS = 1000


class TimeoutCounter:
    """How many statements were ended because they waited for a lock, or ran, for too long."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: dict[str, int] = {"lock": 0, "statement": 0}
        self._logged: dict[str, float] = {}

    def record(self, kind: Kind, subject: str) -> None:
        """Count one timeout of `subject`, which is a wiki's schema or role, or the operator."""
        now = time.monotonic()
        with self._lock:
            self._counts[kind] += 1
            if now - self._logged.get(subject, -_LOG_INTERVAL_S) < _LOG_INTERVAL_S:
                return
            if len(self._logged) >= _MAX_SUBJECTS:
                self._logged.clear()
            self._logged[subject] = now
        _LOG.warning("%s: a %s timeout in PostgreSQL; retried with back-off", subject, kind)

    @property
    def get_counts(self) -> dict[str, int]:
        with self._lock:
            return dict(self._counts)


def retry_lock_timeouts(attempt: Callable[[], _T]) -> _T:
    """Call `attempt`, which does all or nothing, until it gets its locks; raises the LockTimeout of the last try."""
    for number in range(LOCK_TRIES - 1):
        try:
            return attempt()
        except LockTimeout:
            time.sleep(_FIRST_DELAY_S * 2**number * random.uniform(0.5, 1.5))  # noqa: S311 - only spreads the load
    return attempt()
