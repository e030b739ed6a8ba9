"""Connections to databases. Each is logged in as one role and is lent only for it: no statement can change whose it is.

    Connection                                  psycopg.Connection[tuple[Any, ...]]
    Login(address, role, path, operator=False)  who logs in where, and which schemas are in sight
    Doors(most=20, wait=10.0, patience=30.0, lock_timeout_s=None)
                                                at most so many over all wikis; the longest idle goes first
        .timeouts                               how many statements waited or ran for too long (timeouts.py)
        .close()
    Door(doors, login, wiki_id="", subject="")  the way into one schema. login(again) is asked at every use, and
                                                again, with True, when the server does not let it in
        .about(subject) -> Door                 the same way in; what the log calls it
        .reading()  -> context: Connection      autocommit: each statement sees the last committed state
        .snapshot() -> context: Connection      one REPEATABLE READ, READ ONLY transaction
        .writing(lock_timeout_s=None, statement_timeout_s=None)
                    -> context: Connection      one transaction: all of it, or nothing
        .alone()    -> Connection               one that no pool knows, in autocommit (for LISTEN); its taker closes it

All raise DatabaseAway where the database cannot be reached, Busy where every connection is in use for `wait` seconds;
in a block, psycopg's errors come out as errors of ours (faults.py). Every session has a lock timeout and a statement
timeout; the latter is `patience` seconds for a wiki's role. Names need no schema: it is the search path. Safe to use
from many threads; a forked child begins without connections.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Condition
from typing import Any, TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus, PGconn, Ping, TransactionStatus

from wikiholt.errors import Busy, DatabaseAway, IndexFault, IndexMissing, LockTimeout, WikiholtError
from wikiholt.stores.postgres.address import Address
from wikiholt.stores.postgres.faults import away, is_statement_timeout, missing, translated
from wikiholt.stores.postgres.timeouts import (
    OPERATOR_LOCK_TIMEOUT_S,
    OPERATOR_STATEMENT_TIMEOUT_S,
    WIKI_LOCK_TIMEOUT_S,
    Timeouts,
)

_T = TypeVar("_T")
Connection = psycopg.Connection[tuple[Any, ...]]

_MOST_USES = 5000
"""A backend remembers every table it ever saw: the operator's would grow without end."""
_LONG_IDLE = 30.0
"""After so long a firewall may have forgotten a connection: it is tried before it is lent."""
_FAIL_FAST = 1.0
_ONE_TRY = 4.0
_STILL = "15s"
"""Who falls asleep in the middle of writing is ended by the server after so long, so that another can write."""
_GRAVES: list[object] = []
"""What a child inherited: closing it would close the parent's."""


class LoginRefused(Exception):
    """The server is there, and does not let this role in."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in where, and which schemas are in sight."""

    address: Address
    role: str
    path: tuple[str, ...]
    operator: bool = False


@dataclass(slots=True)
class Lent:
    """A connection, with what the pool knows of it."""

    login: Login
    connection: Connection
    uses: int = 0
    idle_since: float = 0.0


class Doors:
    """The connections of a process, however many wikis it serves."""

    def __init__(
        self, most: int = 20, *, wait: float = 10.0, patience: float = 30.0, lock_timeout_s: float | None = None
    ) -> None:
        """`lock_timeout_s` is for all logins; without it, the operator's and the wikis' differ."""
        self._most = max(1, most)
        self._wait = wait
        self._patience = patience
        self._lock_timeout_s = lock_timeout_s
        self.timeouts = Timeouts()
        self._begin()

    def _begin(self) -> None:
        self._changed = Condition()
        self._idle: list[Lent] = []  # the longest idle first
        self._open = 0
        self._busy: dict[str, int] = {}  # how many are lent, by place
        self._down: dict[str, float] = {}  # places that could not be reached, and until when nobody need try
        self._closed = False
        self._pid = os.getpid()

    def take(self, login: Login) -> Lent:
        """A connection of exactly this login; raises LoginRefused, DatabaseAway or Busy."""
        if self._pid != os.getpid():
            _GRAVES.append(self._idle)
            self._begin()
        while (found := self._idle_or_room(login)) is not None:
            if _alive(found):
                return found
            self.discard(found)
        try:
            connection = self.connect(login)
        except BaseException:
            self._returned(login.address.place, closed=True)
            raise
        return Lent(login, connection)

    def give_back(self, lent: Lent) -> None:
        """Keep it for the next of the same login, rolled back; one that is broken or worn is closed."""
        with suppress(psycopg.Error):
            if lent.connection.pgconn.transaction_status != TransactionStatus.IDLE:
                lent.connection.rollback()
        well = lent.connection.pgconn.transaction_status == TransactionStatus.IDLE
        lent.uses, lent.idle_since = lent.uses + 1, time.monotonic()
        if well and lent.uses < _MOST_USES and not self._closed and self._pid == os.getpid():
            self._returned(lent.login.address.place, lent)
        else:
            self.discard(lent)

    def discard(self, lent: Lent) -> None:
        if self._pid != os.getpid():
            _GRAVES.append(lent)
            return
        lent.connection.close()
        self._returned(lent.login.address.place, closed=True)

    def forget(self, login: Login) -> None:
        """Close the idle connections of a login."""
        if self._pid != os.getpid():
            return
        with self._changed:
            going = [lent for lent in self._idle if lent.login == login]
            self._idle = [lent for lent in self._idle if lent.login != login]
            self._open -= len(going)
            self._changed.notify_all()
        for lent in going:
            lent.connection.close()

    def connect(self, login: Login) -> Connection:
        """A new connection that no pool knows; a place that just could not be reached is not tried again at once."""
        place = login.address.place
        with self._changed:
            if (until := self._down.get(place)) is not None:
                if time.monotonic() < until:
                    raise away()
                self._down[place] = time.monotonic() + _ONE_TRY  # one tries; the others need not wait for it
        try:
            connection = self._log_in(login)
        except psycopg.Error as error:
            there = _answers(login.address, error)
            with self._changed:
                if there:  # one role that is not let in keeps no other out
                    self._down.pop(place, None)
                else:
                    self._down[place] = time.monotonic() + _FAIL_FAST
            raise LoginRefused(str(error)) if there else away(error) from error
        with self._changed:
            self._down.pop(place, None)
        return connection

    def close(self) -> None:
        """Close what is idle, and what is lent once it comes back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open -= len(idle)
        for lent in idle:
            lent.connection.close()

    @property
    def open(self) -> int:
        """How many connections there are, lent and idle."""
        return self._open if self._pid == os.getpid() else 0

    @property
    def away(self) -> frozenset[str]:
        """The places that could not be reached when that was last tried."""
        with self._changed:
            return frozenset(self._down)

    def _idle_or_room(self, login: Login) -> Lent | None:
        """An idle connection of the login, or None, and then there is room for one more."""
        until, place = time.monotonic() + self._wait, login.address.place
        with self._changed:
            self._busy.setdefault(place, 0)
            while not self._closed:
                # Where there are several places none may have all: one that has gone silent would silence the others.
                most = self._most - (self._most // 4 if len(self._busy) > 1 else 0)
                if self._busy[place] < most and (self._idle or self._open < self._most):
                    self._busy[place] += 1
                    return self._idle_of(login)
                if not self._changed.wait(until - time.monotonic()):
                    raise Busy("every connection to the database is in use", hint="try again, or raise connections")
        raise psycopg.InterfaceError("the connections were closed")

    def _idle_of(self, login: Login) -> Lent | None:
        """The connection of the login that was used last; None, with room made for another, where there is none."""
        for at in range(len(self._idle) - 1, -1, -1):
            if self._idle[at].login == login:
                return self._idle.pop(at)
        if self._open < self._most:
            self._open += 1
        else:
            self._idle.pop(0).connection.close()
        return None

    def _returned(self, place: str, lent: Lent | None = None, *, closed: bool = False) -> None:
        with self._changed:
            self._busy[place] -= 1
            self._open -= closed
            if lent is not None:
                self._idle.append(lent)
            self._changed.notify_all()

    def _log_in(self, login: Login) -> Connection:
        connection: Connection = psycopg.connect(login.address.conninfo, autocommit=True)
        path = sql.SQL(", ").join(sql.Identifier(schema) for schema in login.path)
        orders: list[sql.Composable] = [sql.SQL("SET search_path TO {}").format(path)]
        if not login.operator:
            orders.append(sql.SQL("SET default_transaction_read_only TO on"))
            orders.append(sql.SQL("SET jit TO off"))  # to compile a search takes longer than the search
        lock_timeout_s, statement_timeout_s = self._timeouts_of(login)
        orders.append(sql.SQL("SET lock_timeout TO {}").format(f"{lock_timeout_s:.3f}s"))
        orders.append(sql.SQL("SET statement_timeout TO {}").format(f"{statement_timeout_s:.3f}s"))
        try:
            connection.execute(sql.SQL("; ").join(orders))
        except BaseException:
            connection.close()
            raise
        return connection

    def _timeouts_of(self, login: Login) -> tuple[float, float]:
        """The lock timeout and the statement timeout of a login's sessions."""
        if login.operator:
            return self._lock_timeout_s or OPERATOR_LOCK_TIMEOUT_S, OPERATOR_STATEMENT_TIMEOUT_S
        return self._lock_timeout_s or WIKI_LOCK_TIMEOUT_S, self._patience


class Door:
    """The way into one schema, under one role."""

    def __init__(self, doors: Doors, login: Callable[[bool], Login], wiki_id: str = "", subject: str = "") -> None:
        """`wiki_id` is the wiki whose schema it is, if it is a wiki's; logs name `subject`, else the wiki."""
        self._doors = doors
        self._login = login
        self.wiki_id = wiki_id
        self._subject = subject or wiki_id

    @property
    def timeouts(self) -> Timeouts:
        return self._doors.timeouts

    def about(self, subject: str) -> "Door":
        """The same way in, for work on one wiki: the log calls it so."""
        return Door(self._doors, self._login, self.wiki_id, subject)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection whose statements each see the last committed state."""
        with self._lent() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """A connection whose statements all see one and the same committed state."""
        with self._lent("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield connection

    @contextmanager
    def writing(
        self, *, lock_timeout_s: float | None = None, statement_timeout_s: float | None = None
    ) -> Iterator[Connection]:
        """One write transaction: all of it, or nothing.

        With a lock timeout of its own it is a try of one who polls, who records a timeout when giving up.
        """
        begin = f"BEGIN READ WRITE; SET LOCAL idle_in_transaction_session_timeout TO '{_STILL}'"
        if lock_timeout_s is not None:
            begin += f"; SET LOCAL lock_timeout TO '{lock_timeout_s:.3f}s'"
        if statement_timeout_s is not None:
            begin += f"; SET LOCAL statement_timeout TO '{statement_timeout_s:.3f}s'"
        with self._lent(begin, polling=lock_timeout_s is not None) as connection:
            yield connection
            connection.execute("COMMIT")

    def alone(self) -> Connection:
        """A connection that no pool knows, in autocommit; close it."""
        return self._let_in(self._doors.connect)

    @contextmanager
    def _lent(self, begin: str = "", *, polling: bool = False) -> Iterator[Connection]:
        lent = self._begun(begin)
        try:
            with translated(lent.connection):
                yield lent.connection
        except LockTimeout:
            if not polling:
                self.timeouts.record("lock", self._subject or lent.login.role)
            raise
        except DatabaseAway as error:
            if self._elsewhere(lent.login):
                raise missing() from error
            raise
        except IndexFault as error:
            if is_statement_timeout(error):
                self.timeouts.record("statement", self._subject or lent.login.role)
            raise
        finally:
            self._doors.give_back(lent)

    def _elsewhere(self, login: Login) -> bool:
        """Whether the wiki was moved or removed, and its sessions ended with its role: no database is away then."""
        try:
            return self._login(True) != login
        except IndexMissing:
            return True
        except WikiholtError:
            return False

    def _begun(self, begin: str) -> Lent:
        """A connection on which the transaction has begun; one that broke while it was idle is no reader's loss."""
        while True:
            lent = self._let_in(self._doors.take)
            try:
                if begin:
                    lent.connection.execute(begin)
            except psycopg.Error as error:
                worn = lent.uses > 0
                self._doors.discard(lent)
                if not worn:
                    raise away(error) from error
            except BaseException:
                self._doors.discard(lent)
                raise
            else:
                return lent

    def _let_in(self, enter: Callable[[Login], _T]) -> _T:
        try:
            return enter(self._login(False))
        except LoginRefused:
            pass
        try:
            return enter(self._login(True))
        except LoginRefused as error:
            raise away(error) from error


def _alive(lent: Lent) -> bool:
    """Whether an idle connection can still be used: a server that ended it has said so by now."""
    connection = lent.connection
    try:
        poll = select.poll()  # select knows no descriptor above 1,023
        poll.register(connection.pgconn.socket, select.POLLIN)
        heard = poll.poll(0)
        # What is heard of an idle one may be its end, of which one look sees the words and only the next the end.
        if heard or time.monotonic() - lent.idle_since > _LONG_IDLE:
            connection.execute("SELECT 1")
        if connection.pgconn.status != ConnStatus.OK:
            return False
    except (psycopg.Error, OSError, ValueError):
        return False
    return True


def _answers(address: Address, error: psycopg.Error) -> bool:
    """Whether the server is there and takes connections, though not this one."""
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return False
    return PGconn.ping(address.conninfo.encode()) == Ping.OK
