"""Leases with fences, for the write lock and the activity lock of a wiki across all nodes.

A lease is a row of the wiki's `state` with a holder, an expiry time by the server's clock, and a fence number that
grows with every acquisition. A thread renews the leases of this process. A process that is suspended too long loses its
lease to the next one that acquires it. Every write calls `check_fence` in its own transaction, which fails for an old
fence or another holder: a standby that was behind when it was promoted counts fences from where it was. The row stays
locked until the end of that transaction, so nobody can acquire the lease meanwhile.
"""

import logging
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Condition, Thread

import psycopg
from psycopg import sql

from wikiholt.errors import Busy, IndexMissing, LockTimeout, WikiholtError
from wikiholt.index.postgres.locks import LEASE_LOCK_TIMEOUT_S, RENEW_LOCK_TIMEOUT_S, retry_lock_timeouts
from wikiholt.index.postgres.placements import PlacementCatalog
from wikiholt.index.postgres.pool import Connection

_LOG = logging.getLogger(__name__)
WRITE_LEASE, ACTIVITY_LEASE = "writer", "activity"
_POLL_INTERVAL_S = 0.05
# No lease lasts an hour: one that ends later is older than a change of the server's clock.
_TAKE_STATEMENT = """
INSERT INTO {state} AS known (name, text, holder, until, fence)
VALUES (%(name)s, %(text)s, %(holder)s, clock_timestamp() + %(seconds)s * interval '1 second', 1)
ON CONFLICT (name) DO UPDATE SET text = excluded.text, holder = excluded.holder, until = excluded.until,
    fence = known.fence + 1
WHERE known.holder IS NULL OR known.until NOT BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 hour'
RETURNING fence
"""
# A locked row belongs to a writer that is writing now; it renews the lease itself.
_RENEW_STATEMENT = """
WITH mine AS (
    SELECT name FROM {state} WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s FOR UPDATE SKIP LOCKED)
UPDATE {state} AS known SET until = clock_timestamp() + %(seconds)s * interval '1 second'
FROM mine WHERE known.name = mine.name
"""
_HELD_STATEMENT = "SELECT 1 FROM {state} WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s"
_SET_TEXT_STATEMENT = (
    "UPDATE {state} SET text = %(text)s WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s"
)
_RELEASE_STATEMENT = (
    "UPDATE {state} SET holder = NULL, until = NULL WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s"
)


def make_lost_lease_error() -> Busy:
    return Busy("another process has taken over writing this wiki's index", hint="the other process continues")


@dataclass(slots=True)
class Lease:
    """A lease of this process. It may have expired meanwhile."""

    wiki_id: str
    name: str
    holder: str
    fence: int = 0
    database: str = ""

    @property
    def parameters(self) -> dict[str, object]:
        return {"name": self.name, "holder": self.holder, "fence": self.fence}


def check_fence(connection: Connection, lease: Lease | None) -> None:
    """Renew the writer's lease and lock it until the end of this transaction. Raises Busy if another writer has it.

    The search path must be the wiki's schema. Without a lease nothing is checked.
    """
    if lease is None:
        return
    statement = (
        "UPDATE state SET until = clock_timestamp() + text::float8 * interval '1 second'"
        " WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s"
    )
    if not connection.execute(statement, lease.parameters).rowcount:
        raise make_lost_lease_error()


class LeaseManager:
    """The leases of this process. One thread per database renews them while there are any."""

    def __init__(self, placements: PlacementCatalog, duration_s: float) -> None:
        self._placements = placements
        self.duration_s = duration_s
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._leases: dict[str, Lease] = {}
        self._changed = Condition()
        self._threads: dict[str, Thread] = {}

    @contextmanager
    def hold(self, wiki_id: str, name: str, timeout_s: float) -> Iterator[Lease]:
        """Hold a lease of a placed wiki. Raises Busy, IndexMissing, DatabaseUnavailable."""
        lease = self._acquire(wiki_id, name, timeout_s)
        self._register(lease)
        try:
            yield lease
        finally:
            with self._changed:
                self._leases.pop(lease.holder, None)
                self._changed.notify_all()
            # The thread that renews leases may have locked the row. A lease that cannot be released expires, or was
            # removed with its wiki.
            with suppress(WikiholtError, psycopg.Error):
                retry_lock_timeouts(lambda: self._execute(_RELEASE_STATEMENT, lease))

    @property
    def count(self) -> int:
        """The number of leases that this process holds."""
        return len(self._leases) if self._pid == os.getpid() else 0

    def set_text(self, lease: Lease, text: str) -> None:
        """Set the text of the lease's row. Best effort: never raises, and does nothing if the lease is lost."""
        with suppress(WikiholtError, psycopg.Error):
            self._execute(_SET_TEXT_STATEMENT, lease, text=text)

    def renew(self, database: str) -> None:
        """Renew all leases on a database."""
        for lease in self._list_leases(database):
            try:
                renewed = self._execute(_RENEW_STATEMENT, lease, seconds=self.duration_s) or self._execute(
                    _HELD_STATEMENT, lease
                )
            except IndexMissing:
                self._placements.invalidate(
                    lease.wiki_id
                )  # moved or removed; read its placement again at the next renewal
            except (WikiholtError, psycopg.Error):
                continue
            else:
                if not renewed:
                    _LOG.warning("%s: this node was suspended too long and lost a lease to another node", lease.wiki_id)
                    with self._changed:
                        self._leases.pop(lease.holder, None)

    def _acquire(self, wiki_id: str, name: str, timeout_s: float) -> Lease:
        deadline, waited = time.monotonic() + timeout_s, False
        lease = Lease(wiki_id, name, f"{os.getpid()}-{secrets.token_hex(8)}")
        while True:
            fence, locked = None, False
            try:
                fence = self._try_acquire(lease)
            except LockTimeout:
                locked = True
            except Busy:
                pass
            except IndexMissing as error:
                if waited:
                    raise IndexMissing(
                        "this wiki was removed while waiting for its index", hint="run `wikiholt list`"
                    ) from error
                raise
            if fence is not None:
                lease.fence = fence
                return lease
            if time.monotonic() >= deadline:
                raise self._make_timeout_error(lease, locked=locked)
            waited = True
            time.sleep(min(_POLL_INTERVAL_S, max(0.0, deadline - time.monotonic())))

    def _make_timeout_error(self, lease: Lease, *, locked: bool) -> Busy:
        """Make the error for a lease that another process holds, or whose row is locked."""
        if locked:
            self._placements.catalog.pool.timeout_counter.record("lock", lease.wiki_id)
        error = LockTimeout if locked else Busy
        return error(
            "another process is at work on this wiki's index", hint="wait for it to finish, or raise lock.timeout"
        )

    def _try_acquire(self, lease: Lease) -> int | None:
        text = str(self.duration_s) if lease.name == WRITE_LEASE else ""
        parameters = {"name": lease.name, "holder": lease.holder, "seconds": self.duration_s, "text": text}
        # Read from the home database every time, so that nobody writes to a place the wiki has left.
        placement = self._placements.get(lease.wiki_id, refresh=True)
        statement = sql.SQL(_TAKE_STATEMENT).format(state=sql.Identifier(placement.schema, "state"))
        with self._placements.get_operator_connections(placement).write_transaction(
            lock_timeout_s=LEASE_LOCK_TIMEOUT_S
        ) as connection:
            lease.database = placement.database
            (fence,) = connection.execute(statement, parameters).fetchone() or (None,)
            return None if fence is None else int(fence)

    def _execute(self, statement: str, lease: Lease, **parameters: object) -> int:
        placement = self._placements.get(lease.wiki_id)
        composed = sql.SQL(statement).format(state=sql.Identifier(placement.schema, "state"))
        connections = self._placements.get_operator_connections(placement)
        try:
            with connections.write_transaction(lock_timeout_s=RENEW_LOCK_TIMEOUT_S) as connection:
                return connection.execute(composed, lease.parameters | parameters).rowcount
        except LockTimeout:
            connections.timeout_counter.record("lock", placement.schema)
            raise

    def _register(self, lease: Lease) -> None:
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            self._leases[lease.holder] = lease
            if lease.database not in self._threads:
                name = f"wikiholt-leases-{lease.database}"
                thread = Thread(target=self._run_renewals, args=(lease.database,), name=name, daemon=True)
                self._threads[lease.database] = thread
                thread.start()

    def _list_leases(self, database: str) -> list[Lease]:
        with self._changed:
            return [lease for lease in self._leases.values() if lease.database == database]

    def _run_renewals(self, database: str) -> None:
        """Renew the leases on one database. An unresponsive database does not delay the others."""
        while True:
            renew_at = time.monotonic() + self.duration_s / 3
            with self._changed:
                while self._list_leases(database) and (left := renew_at - time.monotonic()) > 0:
                    self._changed.wait(left)
                if not self._list_leases(database):
                    del self._threads[database]
                    return
            self.renew(database)
