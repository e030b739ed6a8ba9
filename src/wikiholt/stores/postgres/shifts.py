"""Which node looks after which wiki: claimed in the home's `work`, for as long as the node's lease in `nodes` lasts.

    TABLES                              the home's part that makes them; they stand beside those of the registry
    PostgresShifts(home, lease=15.0)    -> ports.Shifts

One thread with one connection beats three times a lease: it renews the lease, ends those that have run out, takes as
many wikis as are this node's share and gives back what is more. In between it listens. Words may get lost; the rows do
not, and every beat looks at them. All times are the database's.
"""

import logging
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Set
from contextlib import suppress
from threading import Lock, Thread

from wikiholt.errors import DatabaseAway
from wikiholt.ports import Call
from wikiholt.stores.postgres.faults import translated
from wikiholt.stores.postgres.home import Home, Part
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.telling import CHANNEL, FREE, NODES, REGISTRY, WORK, tell

_LOG = logging.getLogger(__name__)

TABLES = Part(
    "shifts",
    (
        "CREATE TABLE nodes (id text PRIMARY KEY, name text NOT NULL, until timestamptz NOT NULL)",
        # A node that ends, or is ended, lets go of all it had in the same transaction.
        "CREATE TABLE work (wiki_id text PRIMARY KEY, node text REFERENCES nodes ON DELETE SET NULL, asked text)",
        "CREATE INDEX work_of_a_node ON work (node, wiki_id)",
        "CREATE INDEX work_asked_for ON work (node) WHERE asked IS NOT NULL",
    ),
)

_BATCH = 500
_AGAIN = 1.0
"""Seconds until a database that is away is tried again."""
_REST = 0.2
"""Seconds between two beats at least, however much is told."""
_RENEW = (
    "UPDATE nodes SET until = clock_timestamp() + make_interval(secs => %s)"
    " WHERE id = %s AND until > clock_timestamp() RETURNING 1"
)
_JOIN = "INSERT INTO nodes VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s))"
_END = "DELETE FROM nodes WHERE until < clock_timestamp() RETURNING id"
_NEW = "INSERT INTO work (wiki_id) SELECT id FROM wikis ORDER BY id ON CONFLICT DO NOTHING"
_GONE = "DELETE FROM work WHERE NOT EXISTS (SELECT 1 FROM wikis WHERE id = wiki_id)"
_COUNT = (
    "SELECT count(*), extract(epoch FROM min(until) FILTER (WHERE id <> %s) - clock_timestamp())::float8,"
    " (SELECT count(*) FROM work) FROM nodes"
)
_CLAIM = (
    "UPDATE work SET node = %s WHERE wiki_id IN"
    " (SELECT wiki_id FROM work WHERE node IS NULL LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING wiki_id"
)
_GIVE = "UPDATE work SET node = NULL WHERE node = %s AND wiki_id = ANY(%s)"
_ASK = (
    "INSERT INTO work AS w (wiki_id, asked) VALUES (%(wiki)s, %(why)s) ON CONFLICT (wiki_id) DO UPDATE"
    " SET asked = CASE WHEN strpos(w.asked, %(why)s) > 0 THEN w.asked ELSE concat_ws(' ', w.asked, %(why)s) END"
)
_TAKE_UP = (
    "WITH taken AS (SELECT wiki_id, asked FROM work WHERE node = %s AND asked IS NOT NULL FOR UPDATE SKIP LOCKED)"
    " UPDATE work SET asked = NULL FROM taken WHERE work.wiki_id = taken.wiki_id"
    " RETURNING taken.wiki_id, taken.asked"
)


class PostgresShifts:
    """One node's part of the work."""

    def __init__(self, home: Home, lease: float = 15.0) -> None:
        self._home = home
        self._lease = lease
        self._called: Callable[[str, Call], None] = lambda _, __: None
        self._thread: Thread | None = None
        self._ring: Callable[[], object] = lambda: None
        self._stopping = False
        self._closing = Lock()
        self._forget()

    def _forget(self) -> None:
        """Be a new node, which has nothing: what the old one had may be another's by now."""
        self._node = secrets.token_hex(8)
        self._joined = False
        self._registry: str | None = None
        self._mine: frozenset[str] = frozenset()
        self._sure_until = 0.0

    def mine(self) -> Set[str]:
        # A node that cannot renew its lease has to take it that others have its wikis.
        return self._mine if time.monotonic() < self._sure_until else frozenset()

    def wake(self, wiki_id: str, why: Call) -> None:
        with self._home.writing() as connection:
            if why is not Call.ASKED:  # that somebody looks at a wiki is not worth a row
                connection.execute(_ASK, {"wiki": wiki_id, "why": why.value})
            tell(connection, WORK, wiki_id, why)

    def begin(self, called: Callable[[str, Call], None]) -> None:
        self._called = called
        self._bell, ringer = socket.socketpair()
        self._ring = ringer.close
        self._thread = Thread(target=self._run, name="shifts", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._closing:
            if self._stopping:
                return
            self._stopping = True
            self._ring()
            if self._thread is not None:
                self._thread.join(10)

    def _run(self) -> None:
        with self._bell:
            self._work()

    def _work(self) -> None:
        while not self._stopping:
            try:
                with self._home.alone() as connection, translated(connection):
                    connection.execute(f"LISTEN {CHANNEL}")
                    while not self._stopping:
                        self._listen(connection, self._beat(connection))
                    self._leave(connection)
            except DatabaseAway:
                self._wait(None, _AGAIN)
            except Exception:  # noqa: BLE001 - whatever it was, without this thread the node would lose its wikis
                _LOG.warning("the work of the nodes could not be divided", exc_info=True)
                self._wait(None, _AGAIN)

    def _beat(self, connection: Connection) -> float:
        """Put everything in order; in how many seconds to do so again."""
        before = self._mine
        began = time.monotonic()
        if not self._joined or not connection.execute(_RENEW, (self._lease, self._node)).fetchone():
            self._forget()
            connection.execute(_JOIN, (self._node, f"{socket.gethostname()}:{os.getpid()}", self._lease))
            self._joined = True
            tell(connection, NODES)
        self._sure_until = began + self._lease
        if connection.execute(_END).fetchall():
            tell(connection, FREE)
        changed = self._follow_registry(connection)
        row = connection.execute(_COUNT, (self._node,)).fetchone()
        assert row is not None
        nodes, soonest, wikis = row
        self._share(connection, -(-wikis // max(1, nodes)))
        if changed or self._mine != before:
            self._called("", Call.SHIFTS)
        self._take_up(connection)
        # A node that dies is noticed as soon as its lease ends.
        return max(0.05, min(self._lease / 3, self._lease if soonest is None else soonest + 0.02))

    def _follow_registry(self, connection: Connection) -> bool:
        """Have a row of work for every wiki that is registered; whether there was a change."""
        row = connection.execute("SELECT digest FROM sealed").fetchone()
        if row is None or row[0] == self._registry:
            return False
        connection.execute(_NEW)
        connection.execute(_GONE)
        mine = connection.execute("SELECT wiki_id FROM work WHERE node = %s", (self._node,))
        self._mine = frozenset(wiki_id for (wiki_id,) in mine)
        self._registry = row[0]
        return True

    def _share(self, connection: Connection, share: int) -> None:
        while (wanting := share - len(self._mine)) > 0:
            claimed = connection.execute(_CLAIM, (self._node, min(_BATCH, wanting))).fetchall()
            if not claimed:
                return
            self._mine = self._mine.union(wiki_id for (wiki_id,) in claimed)
        if wanting < 0:
            surplus = sorted(self._mine)[share:]
            self._mine = self._mine.difference(surplus)
            connection.execute(_GIVE, (self._node, surplus))
            tell(connection, FREE)

    def _take_up(self, connection: Connection) -> None:
        for wiki_id, asked in connection.execute(_TAKE_UP, (self._node,)).fetchall():
            for why in asked.split():
                with suppress(ValueError):  # what a newer node asks for is nothing to an older one
                    self._called(wiki_id, Call(why))

    def _listen(self, connection: Connection, seconds: float) -> None:
        """Hear what is told until the next beat is due, or until something is that does not wait for it."""
        soon, until = time.monotonic() + _REST, time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            # Some came while statements were at work, and would wake nobody any more.
            heard = list(connection.notifies(timeout=0))
            for each in heard:
                what, *words = each.payload.split()
                if what == WORK and words:
                    self._hear(connection, words[0], words[-1])
                elif what in (REGISTRY, NODES, FREE):
                    until = min(until, soon)
            if not heard:
                self._wait(connection, left)

    def _hear(self, connection: Connection, wiki_id: str, why: str) -> None:
        if wiki_id in self._mine:
            if why == Call.ASKED:
                self._called(wiki_id, Call.ASKED)
            else:
                self._take_up(connection)

    def _leave(self, connection: Connection) -> None:
        self._mine = frozenset()
        connection.execute("DELETE FROM nodes WHERE id = %s", (self._node,))
        tell(connection, FREE)

    def _wait(self, connection: Connection | None, seconds: float) -> None:
        """Until something is told, or close() rings, or the time is over."""
        poll = select.poll()  # select knows no descriptor above 1,023
        poll.register(self._bell, select.POLLIN)
        if connection is not None:
            poll.register(connection.pgconn.socket, select.POLLIN)
        poll.poll(max(0.0, seconds) * 1000)
