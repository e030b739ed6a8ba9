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

from wikiholt.errors import Busy, DatabaseUnavailable, IndexMissing, IndexUnavailable, LockTimeout, WikiholtError
from wikiholt.storage.postgres.address import DatabaseAddress
from wikiholt.storage.postgres.errors import (
    is_statement_timeout,
    make_missing_error,
    make_unavailable_error,
    translate_errors,
)
from wikiholt.storage.postgres.timeouts import (
    OPERATOR_LOCK_TIMEOUT_S,
    OPERATOR_STATEMENT_TIMEOUT_S,
    WIKI_LOCK_TIMEOUT_S,
    TimeoutCounter,
)

_T = TypeVar("_T")
Connection = psycopg.Connection[tuple[Any, ...]]

_MAX_USES = 5000
"""A backend remembers every table it ever saw: the operator's would grow without end."""
_IDLE_CHECK_S = 30.0
"""After so long a firewall may have forgotten a connection: it is tried before it is lent."""
_RETRY_DELAY_S = 1.0
_CONNECT_TRY_S = 4.0
_IDLE_TRANSACTION_TIMEOUT = "15s"
"""Who falls asleep in the middle of writing is ended by the server after so long, so that another can write."""
_INHERITED: list[object] = []
"""What a child inherited: closing it would close the parent's."""


class LoginRejected(Exception):
    """The server is there, and does not let this role in."""


@dataclass(frozen=True, slots=True)
class Login:
    """Who logs in where, and which schemas are in sight."""

    address: DatabaseAddress
    role: str
    search_path: tuple[str, ...]
    is_operator: bool = False


@dataclass(slots=True)
class PooledConnection:
    """A connection, with what the pool knows of it."""

    login: Login
    connection: Connection
    uses: int = 0
    idle_since: float = 0.0


class ConnectionPool:
    """The connections of a process, however many wikis it serves."""

    def __init__(
        self,
        max_connections: int = 20,
        *,
        wait_timeout_s: float = 10.0,
        statement_timeout_s: float = 30.0,
        lock_timeout_s: float | None = None,
    ) -> None:
        """`lock_timeout_s` is for all logins; without it, the operator's and the wikis' differ."""
        self._max_connections = max(1, max_connections)
        self._wait_timeout_s = wait_timeout_s
        self._statement_timeout_s = statement_timeout_s
        self._lock_timeout_s = lock_timeout_s
        self.timeout_counter = TimeoutCounter()
        self._reset()

    def _reset(self) -> None:
        self._changed = Condition()
        self._idle: list[PooledConnection] = []  # the longest idle first
        self._open_count = 0
        self._in_use: dict[str, int] = {}  # how many are lent, by place
        self._unreachable_until: dict[
            str, float
        ] = {}  # places that could not be reached, and until when nobody need try
        self._closed = False
        self._pid = os.getpid()

    def acquire(self, login: Login) -> PooledConnection:
        """A connection of exactly this login; raises LoginRefused, DatabaseAway or Busy."""
        if self._pid != os.getpid():
            _INHERITED.append(self._idle)
            self._reset()
        while (found := self._acquire_slot(login)) is not None:
            if _is_alive(found):
                return found
            self.discard(found)
        try:
            connection = self.connect(login)
        except BaseException:
            self._release_slot(login.address.location, closed=True)
            raise
        return PooledConnection(login, connection)

    def release(self, pooled: PooledConnection) -> None:
        """Keep it for the next of the same login, rolled back; one that is broken or worn is closed."""
        with suppress(psycopg.Error):
            if pooled.connection.pgconn.transaction_status != TransactionStatus.IDLE:
                pooled.connection.rollback()
        well = pooled.connection.pgconn.transaction_status == TransactionStatus.IDLE
        pooled.uses, pooled.idle_since = pooled.uses + 1, time.monotonic()
        if well and pooled.uses < _MAX_USES and not self._closed and self._pid == os.getpid():
            self._release_slot(pooled.login.address.location, pooled)
        else:
            self.discard(pooled)

    def discard(self, pooled: PooledConnection) -> None:
        if self._pid != os.getpid():
            _INHERITED.append(pooled)
            return
        pooled.connection.close()
        self._release_slot(pooled.login.address.location, closed=True)

    def close_idle(self, login: Login) -> None:
        """Close the idle connections of a login."""
        if self._pid != os.getpid():
            return
        with self._changed:
            going = [lent for lent in self._idle if lent.login == login]
            self._idle = [lent for lent in self._idle if lent.login != login]
            self._open_count -= len(going)
            self._changed.notify_all()
        for lent in going:
            lent.connection.close()

    def connect(self, login: Login) -> Connection:
        """A new connection that no pool knows; a place that just could not be reached is not tried again at once."""
        place = login.address.location
        with self._changed:
            if (until := self._unreachable_until.get(place)) is not None:
                if time.monotonic() < until:
                    raise make_unavailable_error()
                self._unreachable_until[place] = (
                    time.monotonic() + _CONNECT_TRY_S
                )  # one tries; the others need not wait for it
        try:
            connection = self._connect(login)
        except psycopg.Error as error:
            there = _is_answering(login.address, error)
            with self._changed:
                if there:  # one role that is not let in keeps no other out
                    self._unreachable_until.pop(place, None)
                else:
                    self._unreachable_until[place] = time.monotonic() + _RETRY_DELAY_S
            raise LoginRejected(str(error)) if there else make_unavailable_error(error) from error
        with self._changed:
            self._unreachable_until.pop(place, None)
        return connection

    def close(self) -> None:
        """Close what is idle, and what is lent once it comes back."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open_count -= len(idle)
        for lent in idle:
            lent.connection.close()

    @property
    def open_count(self) -> int:
        """How many connections there are, lent and idle."""
        return self._open_count if self._pid == os.getpid() else 0

    @property
    def unreachable(self) -> frozenset[str]:
        """The places that could not be reached when that was last tried."""
        with self._changed:
            return frozenset(self._unreachable_until)

    def _acquire_slot(self, login: Login) -> PooledConnection | None:
        """An idle connection of the login, or None, and then there is room for one more."""
        until, place = time.monotonic() + self._wait_timeout_s, login.address.location
        with self._changed:
            self._in_use.setdefault(place, 0)
            while not self._closed:
                # Where there are several places none may have all: one that has gone silent would silence the others.
                most = self._max_connections - (self._max_connections // 4 if len(self._in_use) > 1 else 0)
                if self._in_use[place] < most and (self._idle or self._open_count < self._max_connections):
                    self._in_use[place] += 1
                    return self._pop_idle(login)
                if not self._changed.wait(until - time.monotonic()):
                    raise Busy("every connection to the database is in use", hint="try again, or raise connections")
        raise psycopg.InterfaceError("the connections were closed")

    def _pop_idle(self, login: Login) -> PooledConnection | None:
        """The connection of the login that was used last; None, with room made for another, where there is none."""
        for at in range(len(self._idle) - 1, -1, -1):
            if self._idle[at].login == login:
                return self._idle.pop(at)
        if self._open_count < self._max_connections:
            self._open_count += 1
        else:
            self._idle.pop(0).connection.close()
        return None

    def _release_slot(self, location: str, pooled: PooledConnection | None = None, *, closed: bool = False) -> None:
        with self._changed:
            self._in_use[location] -= 1
            self._open_count -= closed
            if pooled is not None:
                self._idle.append(pooled)
            self._changed.notify_all()

    def _connect(self, login: Login) -> Connection:
        connection: Connection = psycopg.connect(login.address.conninfo, autocommit=True)
        path = sql.SQL(", ").join(sql.Identifier(schema) for schema in login.search_path)
        orders: list[sql.Composable] = [sql.SQL("SET search_path TO {}").format(path)]
        if not login.is_operator:
            orders.append(sql.SQL("SET default_transaction_read_only TO on"))
            orders.append(sql.SQL("SET jit TO off"))  # to compile a search takes longer than the search
        lock_timeout_s, statement_timeout_s = self._get_timeouts(login)
        orders.append(sql.SQL("SET lock_timeout TO {}").format(f"{lock_timeout_s:.3f}s"))
        orders.append(sql.SQL("SET statement_timeout TO {}").format(f"{statement_timeout_s:.3f}s"))
        try:
            connection.execute(sql.SQL("; ").join(orders))
        except BaseException:
            connection.close()
            raise
        return connection

    def _get_timeouts(self, login: Login) -> tuple[float, float]:
        """The lock timeout and the statement timeout of a login's sessions."""
        if login.is_operator:
            return self._lock_timeout_s or OPERATOR_LOCK_TIMEOUT_S, OPERATOR_STATEMENT_TIMEOUT_S
        return self._lock_timeout_s or WIKI_LOCK_TIMEOUT_S, self._statement_timeout_s


class RoleConnections:
    """The way into one schema, under one role."""

    def __init__(
        self, pool: ConnectionPool, login: Callable[[bool], Login], wiki_id: str = "", subject: str = ""
    ) -> None:
        """`wiki_id` is the wiki whose schema it is, if it is a wiki's; logs name `subject`, else the wiki."""
        self._pool = pool
        self._login = login
        self.wiki_id = wiki_id
        self._subject = subject or wiki_id

    @property
    def timeout_counter(self) -> TimeoutCounter:
        return self._pool.timeout_counter

    def with_subject(self, subject: str) -> "RoleConnections":
        """The same way in, for work on one wiki: the log calls it so."""
        return RoleConnections(self._pool, self._login, self.wiki_id, subject)

    @contextmanager
    def read_connection(self) -> Iterator[Connection]:
        """A connection whose statements each see the last committed state."""
        with self._borrow() as connection:
            yield connection

    @contextmanager
    def read_snapshot(self) -> Iterator[Connection]:
        """A connection whose statements all see one and the same committed state."""
        with self._borrow("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as connection:
            yield connection

    @contextmanager
    def write_transaction(
        self, *, lock_timeout_s: float | None = None, statement_timeout_s: float | None = None
    ) -> Iterator[Connection]:
        """One write transaction: all of it, or nothing.

        With a lock timeout of its own it is a try of one who polls, who records a timeout when giving up.
        """
        begin = f"BEGIN READ WRITE; SET LOCAL idle_in_transaction_session_timeout TO '{_IDLE_TRANSACTION_TIMEOUT}'"
        if lock_timeout_s is not None:
            begin += f"; SET LOCAL lock_timeout TO '{lock_timeout_s:.3f}s'"
        if statement_timeout_s is not None:
            begin += f"; SET LOCAL statement_timeout TO '{statement_timeout_s:.3f}s'"
        with self._borrow(begin, polling=lock_timeout_s is not None) as connection:
            yield connection
            connection.execute("COMMIT")

    def open_dedicated(self) -> Connection:
        """A connection that no pool knows, in autocommit; close it."""
        return self._with_login_retry(self._pool.connect)

    @contextmanager
    def _borrow(self, begin: str = "", *, polling: bool = False) -> Iterator[Connection]:
        lent = self._begin_transaction(begin)
        try:
            with translate_errors(lent.connection):
                yield lent.connection
        except LockTimeout:
            if not polling:
                self.timeout_counter.record("lock", self._subject or lent.login.role)
            raise
        except DatabaseUnavailable as error:
            if self._has_moved(lent.login):
                raise make_missing_error() from error
            raise
        except IndexUnavailable as error:
            if is_statement_timeout(error):
                self.timeout_counter.record("statement", self._subject or lent.login.role)
            raise
        finally:
            self._pool.release(lent)

    def _has_moved(self, login: Login) -> bool:
        """Whether the wiki was moved or removed, and its sessions ended with its role: no database is away then."""
        try:
            return self._login(True) != login
        except IndexMissing:
            return True
        except WikiholtError:
            return False

    def _begin_transaction(self, begin: str) -> PooledConnection:
        """A connection on which the transaction has begun; one that broke while it was idle is no reader's loss."""
        while True:
            lent = self._with_login_retry(self._pool.acquire)
            try:
                if begin:
                    lent.connection.execute(begin)
            except psycopg.Error as error:
                worn = lent.uses > 0
                self._pool.discard(lent)
                if not worn:
                    raise make_unavailable_error(error) from error
            except BaseException:
                self._pool.discard(lent)
                raise
            else:
                return lent

    def _with_login_retry(self, action: Callable[[Login], _T]) -> _T:
        try:
            return action(self._login(False))
        except LoginRejected:
            pass
        try:
            return action(self._login(True))
        except LoginRejected as error:
            raise make_unavailable_error(error) from error


def _is_alive(pooled: PooledConnection) -> bool:
    """Whether an idle connection can still be used: a server that ended it has said so by now."""
    connection = pooled.connection
    try:
        poll = select.poll()  # select knows no descriptor above 1,023
        poll.register(connection.pgconn.socket, select.POLLIN)
        heard = poll.poll(0)
        # What is heard of an idle one may be its end, of which one look sees the words and only the next the end.
        if heard or time.monotonic() - pooled.idle_since > _IDLE_CHECK_S:
            connection.execute("SELECT 1")
        if connection.pgconn.status != ConnStatus.OK:
            return False
    except (psycopg.Error, OSError, ValueError):
        return False
    return True


def _is_answering(address: DatabaseAddress, error: psycopg.Error) -> bool:
    """Whether the server is there and takes connections, though not this one."""
    if isinstance(error, psycopg.errors.ConnectionTimeout):
        return False
    return PGconn.ping(address.conninfo.encode()) == Ping.OK
