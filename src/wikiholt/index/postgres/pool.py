"""Connection pool in which every connection belongs to one login.

A wiki's statements run only on connections that are logged in as the wiki's role. Every session has a lock timeout and
a statement timeout, and its search path is the wiki's schema. All operations raise DatabaseUnavailable if the database
is unreachable, and Busy if every connection stays in use; psycopg errors are translated (see `errors`). Safe to use
from many threads. A forked child starts without connections.
"""

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from threading import Condition
from typing import TypeVar

import psycopg
from psycopg import sql
from psycopg.pq import ConnStatus, TransactionStatus

from wikiholt.errors import (
    Busy,
    DatabaseUnavailable,
    IndexMissing,
    IndexUnavailable,
    LockTimeout,
    TooManyConnections,
    WikiholtError,
)
from wikiholt.index.postgres.address import DatabaseAddress
from wikiholt.index.postgres.errors import (
    is_connection_limit,
    is_statement_timeout,
    make_connections_error,
    make_login_error,
    make_missing_error,
    make_unavailable_error,
    translate_errors,
)
from wikiholt.index.postgres.locks import (
    OPERATOR_LOCK_TIMEOUT_S,
    OPERATOR_STATEMENT_TIMEOUT_S,
    WIKI_LOCK_TIMEOUT_S,
    TimeoutCounter,
)
from wikiholt.index.postgres.primary import LoginRejected, Primaries, PrimarySession, commit

_T = TypeVar("_T")
Connection = PrimarySession

_MAX_USES = 5000
"""A PostgreSQL backend caches every table it has used, so operator sessions must be replaced from time to time."""
_IDLE_CHECK_S = 30.0
"""Idle time after which a connection is tested before use, because a firewall may have dropped it."""
_RETRY_DELAY_S = 1.0
_CONNECT_TRY_S = 4.0
_ROOM_DELAYS_S = (0.02, 0.1, 0.3, 1.0)
_IDLE_TRANSACTION_TIMEOUT_S = 15
"""The server ends a session that is suspended inside a write transaction, so that another can write."""
_INHERITED: list[object] = []
"""Connections inherited by a forked child. Closing them would close those of the parent."""


@dataclass(frozen=True, slots=True)
class Login:
    """A role on a database, with its search path."""

    address: DatabaseAddress
    role: str
    search_path: tuple[str, ...]
    is_operator: bool = False


@dataclass(slots=True)
class PooledConnection:
    """A connection with its usage data."""

    login: Login
    connection: PrimarySession
    uses: int = 0
    idle_since: float = 0.0


class ConnectionPool:
    """The connections of a process, for all wikis. The longest idle connection is closed first."""

    def __init__(
        self,
        max_connections: int = 20,
        *,
        wait_timeout_s: float = 10.0,
        statement_timeout_s: float = 30.0,
        lock_timeout_s: float | None = None,
        primaries: Primaries | None = None,
    ) -> None:
        """`lock_timeout_s` overrides the default lock timeouts of all logins. Pools of a process share `primaries`."""
        self.primaries = primaries or Primaries()
        self._max_connections = max(1, max_connections)
        self._wait_timeout_s = wait_timeout_s
        self._statement_timeout_s = statement_timeout_s
        self._lock_timeout_s = lock_timeout_s
        self.timeout_counter = TimeoutCounter()
        self.refusal_counter = TimeoutCounter(("connections", "login"))
        self._reset()

    def _reset(self) -> None:
        self._changed = Condition()
        self._idle: list[PooledConnection] = []  # longest idle first
        self._open_count = 0
        self._in_use: dict[str, int] = {}  # by location
        self._unreachable_until: dict[str, float] = {}  # by location: when to try again
        self._closed = False
        self._pid = os.getpid()

    def acquire(self, login: Login) -> PooledConnection:
        """A connection of exactly this login. Raises LoginRejected, DatabaseUnavailable, Busy."""
        if self._pid != os.getpid():
            _INHERITED.append(self._idle)
            self._reset()
        while (pooled := self._acquire_slot(login)) is not None:
            if not self.primaries.is_outdated(pooled.connection) and _is_alive(pooled):
                return pooled
            self.discard(pooled)
        try:
            connection = self._connect_with_room(login)
        except BaseException:
            self._release_slot(login.address.location, closed=True)
            raise
        return PooledConnection(login, connection)

    def _connect_with_room(self, login: Login) -> PrimarySession:
        """Connect. If the server has no connection left, close one that is idle and try again."""
        made_room = False
        for delay_s in _ROOM_DELAYS_S:
            try:
                return self.connect(login)
            except TooManyConnections:
                with self._changed:
                    idle = self._idle.pop(0) if self._idle else None
                    self._open_count -= idle is not None
                if idle is not None:
                    idle.connection.close()
                    made_room = True
                elif not made_room:
                    raise
                time.sleep(delay_s)  # the server needs a moment to end the session
        return self.connect(login)

    def release(self, pooled: PooledConnection) -> None:
        """Roll back and return a connection to the pool. Closes it if it is broken or has been used too often."""
        with suppress(psycopg.Error):
            if pooled.connection.pgconn.transaction_status != TransactionStatus.IDLE:
                pooled.connection.rollback()
        reusable = pooled.connection.pgconn.transaction_status == TransactionStatus.IDLE
        pooled.uses, pooled.idle_since = pooled.uses + 1, time.monotonic()
        if reusable and pooled.uses < _MAX_USES and not self._closed and self._pid == os.getpid():
            self._release_slot(pooled.login.address.location, pooled)
        else:
            self.discard(pooled)

    def discard(self, pooled: PooledConnection) -> None:
        """Close a connection that is in use."""
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
            closing = [pooled for pooled in self._idle if pooled.login == login]
            self._idle = [pooled for pooled in self._idle if pooled.login != login]
            self._open_count -= len(closing)
            self._changed.notify_all()
        for pooled in closing:
            pooled.connection.close()

    def connect(self, login: Login) -> PrimarySession:
        """Open a connection outside the pool. Fails at once if the location was unreachable a moment ago."""
        location = login.address.location
        with self._changed:
            if (until := self._unreachable_until.get(location)) is not None:
                if time.monotonic() < until:
                    raise make_unavailable_error()
                # Only one thread tries; the others fail at once.
                self._unreachable_until[location] = time.monotonic() + _CONNECT_TRY_S
        try:
            connection = self._connect(login)
        except LoginRejected:  # a rejected role must not affect other roles
            self._mark_reachable(location)
            raise
        except psycopg.Error as error:
            if is_connection_limit(error):
                self._mark_reachable(location)
                self.refusal_counter.record("connections", location)
                raise make_connections_error() from error
            with self._changed:
                self._unreachable_until[location] = time.monotonic() + _RETRY_DELAY_S
            raise make_unavailable_error(error) from error
        self._mark_reachable(location)
        return connection

    def _mark_reachable(self, location: str) -> None:
        with self._changed:
            self._unreachable_until.pop(location, None)

    def close(self) -> None:
        """Close idle connections now, and connections in use when they are released."""
        with self._changed:
            self._closed = True
            idle, self._idle = self._idle, []
            self._open_count -= len(idle)
        for pooled in idle:
            pooled.connection.close()

    @property
    def open_count(self) -> int:
        """The number of open connections, idle and in use."""
        return self._open_count if self._pid == os.getpid() else 0

    @property
    def unreachable(self) -> frozenset[str]:
        """The locations that were unreachable at the last attempt."""
        with self._changed:
            return frozenset(self._unreachable_until)

    def _acquire_slot(self, login: Login) -> PooledConnection | None:
        """Reserve a slot. Returns an idle connection of the login, or None if a new one must be opened. Raises Busy."""
        deadline, location = time.monotonic() + self._wait_timeout_s, login.address.location
        with self._changed:
            self._in_use.setdefault(location, 0)
            while not self._closed:
                # With several locations none may use all slots, or an unresponsive one would block the others.
                limit = self._max_connections - (self._max_connections // 4 if len(self._in_use) > 1 else 0)
                if self._in_use[location] < limit and (self._idle or self._open_count < self._max_connections):
                    self._in_use[location] += 1
                    return self._pop_idle(login)
                if not self._changed.wait(deadline - time.monotonic()):
                    raise Busy("every connection to the database is in use", hint="try again, or raise connections")
        raise psycopg.InterfaceError("the connection pool is closed")

    def _pop_idle(self, login: Login) -> PooledConnection | None:
        """Take the last used connection of the login. Returns None, after making room, if there is none."""
        for position in range(len(self._idle) - 1, -1, -1):
            if self._idle[position].login == login:
                return self._idle.pop(position)
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

    def _connect(self, login: Login) -> PrimarySession:
        connection = self.primaries.connect(login.address)
        path = sql.SQL(", ").join(sql.Identifier(schema) for schema in login.search_path)
        statements: list[sql.Composable] = [sql.SQL("SET search_path TO {}").format(path)]
        if not login.is_operator:
            statements.append(sql.SQL("SET default_transaction_read_only TO on"))
            statements.append(sql.SQL("SET jit TO off"))  # JIT compilation takes longer than a search
        lock_timeout_s, statement_timeout_s = self._get_timeouts(login)
        statements.append(sql.SQL("SET lock_timeout TO {}").format(f"{lock_timeout_s:.3f}s"))
        statements.append(sql.SQL("SET statement_timeout TO {}").format(f"{statement_timeout_s:.3f}s"))
        try:
            connection.execute(sql.SQL("; ").join(statements))
        except BaseException:
            connection.close()
            raise
        return connection

    def _get_timeouts(self, login: Login) -> tuple[float, float]:
        """The lock timeout and the statement timeout of a login."""
        if login.is_operator:
            return self._lock_timeout_s or OPERATOR_LOCK_TIMEOUT_S, OPERATOR_STATEMENT_TIMEOUT_S
        return self._lock_timeout_s or WIKI_LOCK_TIMEOUT_S, self._statement_timeout_s


class RoleConnections:
    """Connections to one schema under one role."""

    def __init__(
        self, pool: ConnectionPool, login: Callable[[bool], Login], wiki_id: str = "", subject: str = ""
    ) -> None:
        """`login(refresh)` returns the current login; it is called again with True if the server rejects it.

        `wiki_id` is set for the schema of a wiki. Log messages name `subject`, or else the wiki.
        """
        self._pool = pool
        self._login = login
        self.wiki_id = wiki_id
        self._subject = subject or wiki_id

    @property
    def timeout_counter(self) -> TimeoutCounter:
        return self._pool.timeout_counter

    def with_subject(self, subject: str) -> "RoleConnections":
        """The same connections with another name for log messages."""
        return RoleConnections(self._pool, self._login, self.wiki_id, subject)

    def read_connection(self) -> AbstractContextManager[Connection]:
        """A connection in autocommit mode: each statement sees the last committed state."""
        return self._borrow()

    def read_snapshot(self) -> AbstractContextManager[Connection]:
        """A read-only REPEATABLE READ transaction: all statements see the same state."""
        return self._borrow("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @contextmanager
    def write_transaction(
        self, *, lock_timeout_s: float | None = None, statement_timeout_s: float | None = None
    ) -> Iterator[Connection]:
        """A write transaction, committed at the end of the block.

        With `lock_timeout_s` the caller polls for locks, and records a timeout itself when it gives up.
        """
        begin = f"BEGIN READ WRITE; SET LOCAL idle_in_transaction_session_timeout TO '{_IDLE_TRANSACTION_TIMEOUT_S}s'"
        if lock_timeout_s is not None:
            begin += f"; SET LOCAL lock_timeout TO '{lock_timeout_s:.3f}s'"
        if statement_timeout_s is not None:
            begin += f"; SET LOCAL statement_timeout TO '{statement_timeout_s:.3f}s'"
        with self._borrow(begin, polling=lock_timeout_s is not None) as connection:
            yield connection
            commit(connection)

    def open_dedicated(self) -> Connection:
        """Open an autocommit connection outside the pool, for LISTEN. The caller closes it."""
        return self._with_login_retry(self._pool.connect)

    @contextmanager
    def _borrow(self, begin: str = "", *, polling: bool = False) -> Iterator[Connection]:
        pooled = self._begin_transaction(begin)
        try:
            with translate_errors(pooled.connection):
                yield pooled.connection
        except LockTimeout:
            if not polling:
                self.timeout_counter.record("lock", self._subject or pooled.login.role)
            raise
        except DatabaseUnavailable as error:
            if self._has_moved(pooled.login):
                raise make_missing_error() from error
            raise
        except IndexUnavailable as error:
            if is_statement_timeout(error):
                self.timeout_counter.record("statement", self._subject or pooled.login.role)
            raise
        finally:
            self._pool.release(pooled)

    def _has_moved(self, login: Login) -> bool:
        """Whether the session ended because the wiki was moved or removed, not because the database is down."""
        try:
            return self._login(True) != login
        except IndexMissing:
            return True
        except WikiholtError:
            return False

    def _begin_transaction(self, begin: str) -> PooledConnection:
        """Begin a transaction. Retries with another connection if the pooled one broke while it was idle."""
        while True:
            pooled = self._with_login_retry(self._pool.acquire)
            try:
                if begin:
                    pooled.connection.execute(begin)
            except psycopg.Error as error:
                reused = pooled.uses > 0
                self._pool.discard(pooled)
                if not reused:
                    raise make_unavailable_error(error) from error
            except BaseException:
                self._pool.discard(pooled)
                raise
            else:
                return pooled

    def _with_login_retry(self, action: Callable[[Login], _T]) -> _T:
        try:
            return action(self._login(False))
        except LoginRejected:
            pass
        login = self._login(True)
        try:
            return action(login)
        except LoginRejected as error:
            if not self.wiki_id:
                raise make_unavailable_error(error) from error
            self._pool.refusal_counter.record("login", self._subject)
            raise make_login_error() from error


def _is_alive(pooled: PooledConnection) -> bool:
    """Whether an idle connection is still usable."""
    connection = pooled.connection
    try:
        poll = select.poll()  # select() fails for descriptors above 1,023
        poll.register(connection.pgconn.socket, select.POLLIN)
        readable = poll.poll(0)
        # Pending input may announce the end of the session; a statement is needed to notice the end itself.
        if readable or time.monotonic() - pooled.idle_since > _IDLE_CHECK_S:
            connection.execute("SELECT 1")
        if connection.pgconn.status != ConnStatus.OK:
            return False
    except (psycopg.Error, OSError, ValueError):
        return False
    return True
