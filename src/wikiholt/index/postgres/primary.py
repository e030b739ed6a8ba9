"""Sessions on the primary of a database that may have standbys.

The hosts of an address are tried in turn, the one that worked last first; a standby is never used. A promotion begins a
new timeline. A process that has seen a timeline leaves every session on an older one: its server is a former primary,
which still answers if it was frozen, or if only its manager ended.

A server that is frozen closes nothing and answers nothing, so a statement without an answer for `SILENCE_S` asks all
hosts again, and fails if its own does not answer or another one has a newer timeline.
"""

import math
import time
from collections.abc import Generator
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple, NoReturn, TypeVar

import psycopg
from psycopg.pq import PGconn, Ping

from wikiholt.index.postgres.address import DatabaseAddress
from wikiholt.index.postgres.errors import is_connection_limit, make_unconfirmed_error

_T = TypeVar("_T")
SILENCE_S = 5.0
LOOK_S = 5.0
CONFIRM_S = 30.0
"""How long a commit waits for the standby. Patroni replaces one that does not answer sooner than that."""
_POLL_S, _CANCEL_S = 0.1, 3.0
_SELECT_TIMELINE = (
    "SELECT system_identifier, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int"
    " FROM pg_control_system()"
)
# libpq has no codes for these. It was built without translations.
_STANDBY_TEXTS = ("session is read-only", "server is in hot standby mode")
_UNCONFIRMED_SQLSTATE = "01000"
_SELECT_REPLICATION = (
    "SELECT (SELECT count(*) FROM pg_stat_replication), current_setting('synchronous_standby_names'),"
    " current_setting('synchronous_commit')"
)


class Timeline(NamedTuple):
    """The history of a server's data: the cluster, and how often one of its standbys was promoted."""

    system: int = 0
    number: int = 0


class LoginRejected(Exception):
    """The server is reachable and rejects the login."""


class PrimarySession(psycopg.Connection[tuple[Any, ...]]):
    """A session with its place."""

    primaries: "Primaries"
    address: DatabaseAddress
    host: DatabaseAddress
    timeline: Timeline
    cancel_at = math.inf

    def wait(self, gen: Generator[Any, Any, _T], interval: float = _POLL_S, timeout: float | None = None) -> _T:
        return super().wait(self._watch(gen), interval, timeout)

    def _watch(self, statement: Generator[Any, Any, _T]) -> Generator[Any, Any, _T]:
        """Run a statement. Raises OperationalError if its server is not the primary now, also if it is only silent."""
        check_at = time.monotonic() + SILENCE_S
        if self.primaries.is_outdated(self):
            self._leave()
        try:
            wanted = next(statement)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > self.cancel_at:
                    self.cancel_at = math.inf
                    self.cancel_safe(timeout=_CANCEL_S)
                if not ready and time.monotonic() > check_at:
                    if not self.primaries.is_current(self):
                        self._leave()
                    check_at = time.monotonic() + SILENCE_S
                wanted = statement.send(ready)
        except StopIteration as ended:
            result: _T = ended.value
            return result

    def _leave(self) -> NoReturn:
        self.pgconn.finish()
        raise psycopg.OperationalError("the server does not answer, or is no longer the primary")


class Primaries:
    """What a process knows of the primaries of its databases. Safe to use from many threads."""

    def __init__(self) -> None:
        self._hosts: dict[str, str] = {}  # the host that worked last, by location
        self._newest: dict[str, Timeline] = {}  # by location
        self._looked_at: dict[str, float] = {}  # by location

    def connect(self, address: DatabaseAddress) -> PrimarySession:
        """Open a session on the primary. Raises LoginRejected, psycopg.Error."""
        errors: list[Exception] = []
        for host in self._sort_hosts(address):
            try:
                return self._open(address, host)
            except psycopg.Error as error:
                if is_connection_limit(error):
                    raise
                errors.append(LoginRejected(str(error)) if _is_rejected(host, error) else error)
        raise next((error for error in errors if isinstance(error, LoginRejected)), errors[-1])

    def is_outdated(self, session: PrimarySession) -> bool:
        """Whether its server was the primary, and another one is now: at most twice `LOOK_S` after the promotion."""
        self._look_for_promotion(session)
        return self._is_older(session)

    def _is_older(self, session: PrimarySession) -> bool:
        newest = self._newest.get(session.address.location, session.timeline)
        return newest.system != session.timeline.system or newest.number > session.timeline.number

    def is_current(self, session: PrimarySession) -> bool:
        """Ask all hosts whether the server of a session answers, and is still the primary."""
        answers = False
        for host in session.address.hosts:
            try:
                self._open(session.address, host).close()
            except psycopg.Error as error:
                answers |= host == session.host and (is_connection_limit(error) or _is_rejected(host, error))
            else:
                answers |= host == session.host
        return answers and not self._is_older(session)

    def _look_for_promotion(self, session: PrimarySession) -> None:
        """Ask the hosts if that was not done lately: in a thread, because one may be silent."""
        location = session.address.location
        age_s = time.monotonic() - self._looked_at.get(location, -math.inf)
        if age_s < LOOK_S:
            return
        self._looked_at[location] = time.monotonic()
        if len(session.address.hosts) == 1:
            return
        thread = Thread(target=self.is_current, args=(session,), name="wikiholt-primary", daemon=True)
        thread.start()
        if age_s > 2 * LOOK_S:
            thread.join(LOOK_S)

    def _sort_hosts(self, address: DatabaseAddress) -> list[DatabaseAddress]:
        last = self._hosts.get(address.location)
        return sorted(address.hosts, key=lambda host: host.location != last)

    def _open(self, address: DatabaseAddress, host: DatabaseAddress) -> PrimarySession:
        session = PrimarySession.connect(host.conninfo, autocommit=True)
        newest = self._newest.get(address.location, Timeline())
        session.primaries, session.address, session.host, session.timeline = self, address, host, newest
        try:
            if len(address.hosts) > 1:
                with suppress(psycopg.errors.InsufficientPrivilege):  # of a managed service
                    session.timeline = Timeline(*(session.execute(_SELECT_TIMELINE).fetchone() or ()))
            newest = self._newest.get(address.location, newest)
            if newest.system == session.timeline.system and newest.number > session.timeline.number:
                raise psycopg.OperationalError("the server is a former primary")
        except BaseException:
            session.close()
            raise
        self._hosts[address.location], self._newest[address.location] = host.location, session.timeline
        return session


def commit(session: PrimarySession) -> None:
    """Commit the open transaction. Raises DatabaseUnavailable if no standby has confirmed it in time.

    A server that is cancelled while it waits for its standby commits and warns: a failover can lose the transaction.
    """
    warnings = list[str | None]()

    def record(notice: psycopg.errors.Diagnostic) -> None:
        warnings.append(notice.sqlstate)

    session.add_notice_handler(record)
    session.cancel_at = time.monotonic() + CONFIRM_S  # statement_timeout does not end this wait
    try:
        session.execute("COMMIT")
    finally:
        session.cancel_at = math.inf
        session.remove_notice_handler(record)
    if _UNCONFIRMED_SQLSTATE in warnings:
        raise make_unconfirmed_error()


def find_replication_fault(connection: psycopg.Connection[tuple[Any, ...]], address: DatabaseAddress) -> str:
    """Why the database can lose acknowledged writes; empty if it cannot, or has no standby to fail over to."""
    standbys, names, confirmed = connection.execute(_SELECT_REPLICATION).fetchone() or (0, "", "")
    if confirmed == "off":
        return "synchronous_commit is off: a crash loses the writes that were acknowledged last"
    if (standbys or len(address.hosts) > 1) and (not names or confirmed == "local"):
        return "no standby confirms writes: a failover loses the writes that were acknowledged last"
    return ""


def _is_rejected(host: DatabaseAddress, error: psycopg.Error) -> bool:
    """Whether a primary accepts connections, though not this one."""
    if isinstance(error, psycopg.errors.ConnectionTimeout) or any(text in str(error) for text in _STANDBY_TEXTS):
        return False
    # A host that did not time out answers at once; while it is asked, no other thread runs.
    return PGconn.ping(host.conninfo.encode()) == Ping.OK
