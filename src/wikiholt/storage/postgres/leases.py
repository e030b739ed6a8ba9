"""Leases with fences: who writes a wiki's index, or sits at its desk, whichever node that is on.

A lease is a row of the wiki's `notes`: a holder, a time by the server's clock until which it holds, and a fence, which
grows with every taking. A thread renews what this process holds. One that sleeps for too long loses its lease to the
next who asks; when it wakes, its fence is an old one, and `hold`, which every write calls in its own transaction, ends
it. The row is locked until that transaction's end, so no other can take the lease in the middle of it.

    hold(connection, fence)    in a transaction whose search path is the wiki's schema: raises Busy unless the lease of
                               the writer still has this fence; at the beginning and, if it took long, before the end
    Leases(placements, seconds)
        .held(wiki_id, name, timeout) -> context: Lease    raises Busy, IndexMissing, DatabaseAway
        .leave(lease, text)                                a note in the lease's row; never fails
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
from wikiholt.storage.postgres.placements import PlacementCatalog
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.timeouts import LEASE_LOCK_TIMEOUT_S, RENEW_LOCK_TIMEOUT_S

_LOG = logging.getLogger(__name__)
WRITE_LEASE, ACTIVITY_LEASE = "writer", "desk"
_POLL_INTERVAL_S = 0.05
_TAKE_STATEMENT = """
INSERT INTO {notes} AS known (name, text, holder, until, fence)
VALUES (%(name)s, %(text)s, %(holder)s, clock_timestamp() + %(seconds)s * interval '1 second', 1)
ON CONFLICT (name) DO UPDATE SET text = excluded.text, holder = excluded.holder, until = excluded.until,
    fence = known.fence + 1
WHERE known.holder IS NULL OR known.until < clock_timestamp()
RETURNING fence
"""
# A row that is locked is one whose writer is just writing: it has until the end of that.
_RENEW_STATEMENT = """
WITH mine AS (
    SELECT name FROM {notes} WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s FOR UPDATE SKIP LOCKED)
UPDATE {notes} AS known SET until = clock_timestamp() + %(seconds)s * interval '1 second'
FROM mine WHERE known.name = mine.name
"""
_HELD_STATEMENT = "SELECT 1 FROM {notes} WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s"
_SET_TEXT_STATEMENT = (
    "UPDATE {notes} SET text = %(text)s WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s"
)
_RELEASE_STATEMENT = (
    "UPDATE {notes} SET holder = NULL, until = NULL WHERE name = %(name)s AND holder = %(holder)s AND fence = %(fence)s"
)


def check_fence(connection: Connection, fence: int | None) -> None:
    """Raise Busy unless the writer's lease has this fence; it is renewed, and nobody can take it in this transaction.

    Without a fence nothing is asked: who writes without the lease has nothing to lose.
    """
    if fence is None:
        return
    order = (
        "UPDATE notes SET until = clock_timestamp() + text::float8 * interval '1 second'"
        " WHERE name = %s AND fence = %s AND holder IS NOT NULL"
    )
    if not connection.execute(order, (WRITE_LEASE, fence)).rowcount:
        raise make_lost_lease_error()


def make_lost_lease_error() -> Busy:
    return Busy("another took over the writing of this wiki's index meanwhile", hint="it goes on there")


@dataclass(slots=True)
class Lease:
    """A lease this process holds, as far as it knows."""

    wiki_id: str
    name: str
    holder: str
    fence: int = 0
    database: str = ""

    @property
    def parameters(self) -> dict[str, object]:
        return {"name": self.name, "holder": self.holder, "fence": self.fence}


class LeaseManager:
    """The leases of a process, renewed by one thread a database, for as long as there are any."""

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
    def hold(self, wiki_id: str, name: str, timeout: float) -> Iterator[Lease]:
        """Hold a lease of a wiki that is placed; it is given back at the end, or runs out."""
        lease = self._acquire(wiki_id, name, timeout)
        self._register(lease)
        try:
            yield lease
        finally:
            with self._changed:
                self._leases.pop(lease.holder, None)
                self._changed.notify_all()
            # Where it cannot be given back it runs out; where the wiki was removed it went with it.
            with suppress(WikiholtError, psycopg.Error):
                self._execute(_RELEASE_STATEMENT, lease)

    @property
    def count(self) -> int:
        """How many leases this process holds."""
        return len(self._leases) if self._pid == os.getpid() else 0

    def set_text(self, lease: Lease, text: str) -> None:
        """Leave a note in the lease's row, if that can be; whoever lost the lease leaves none."""
        with suppress(WikiholtError, psycopg.Error):
            self._execute(_SET_TEXT_STATEMENT, lease, text=text)

    def renew(self, database: str) -> None:
        """Renew all that is held on a database."""
        for lease in self._list_leases(database):
            try:
                renewed = self._execute(_RENEW_STATEMENT, lease, seconds=self.duration_s) or self._execute(
                    _HELD_STATEMENT, lease
                )
            except IndexMissing:
                self._placements.invalidate(lease.wiki_id)  # moved or removed; the next beat knows
            except (WikiholtError, psycopg.Error):
                continue
            else:
                if not renewed:
                    _LOG.warning("a lease on a wiki was lost to another node: this one was away for too long")
                    with self._changed:
                        self._leases.pop(lease.holder, None)

    def _acquire(self, wiki_id: str, name: str, timeout: float) -> Lease:
        until, waited = time.monotonic() + timeout, False
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
            if time.monotonic() >= until:
                raise self._give_up(lease, locked=locked)
            waited = True
            time.sleep(min(_POLL_INTERVAL_S, max(0.0, until - time.monotonic())))

    def _give_up(self, lease: Lease, *, locked: bool) -> Busy:
        """The error for a lease that was not to be had: another has it, or a session holds a lock on the notes."""
        if locked:
            self._placements.catalog.timeout_counter.record("lock", lease.wiki_id)
        kind = LockTimeout if locked else Busy
        return kind("another is at work on this wiki's index", hint="wait for it to finish, or raise lock.timeout")

    def _try_acquire(self, lease: Lease) -> int | None:
        text = str(self.duration_s) if lease.name == WRITE_LEASE else ""
        given = {"name": lease.name, "holder": lease.holder, "seconds": self.duration_s, "text": text}
        # Asked of the home every time: nobody must begin to write where the wiki is no more.
        placement = self._placements.get(lease.wiki_id, refresh=True)
        order = sql.SQL(_TAKE_STATEMENT).format(notes=sql.Identifier(placement.schema, "notes"))
        with self._placements.get_operator_connections(placement).write_transaction(
            lock_timeout_s=LEASE_LOCK_TIMEOUT_S
        ) as connection:
            lease.database = placement.database
            row = connection.execute(order, given).fetchone()
            return None if row is None else int(row[0])

    def _execute(self, statement: str, lease: Lease, **parameters: object) -> int:
        placement = self._placements.get(lease.wiki_id)
        composed = sql.SQL(statement).format(notes=sql.Identifier(placement.schema, "notes"))
        door = self._placements.get_operator_connections(placement)
        try:
            with door.write_transaction(lock_timeout_s=RENEW_LOCK_TIMEOUT_S) as connection:
                return connection.execute(composed, lease.parameters | parameters).rowcount
        except LockTimeout:
            door.timeout_counter.record("lock", placement.schema)
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
        """Renew what is held on one database: another that has gone silent must not cost it."""
        while True:
            until = time.monotonic() + self.duration_s / 3
            with self._changed:
                while self._list_leases(database) and (left := until - time.monotonic()) > 0:
                    self._changed.wait(left)
                if not self._list_leases(database):
                    del self._threads[database]
                    return
            self.renew(database)
