"""The indexes of generations that have grown, made beside readers and writers; by the operator, never in a search.

Each is made CONCURRENTLY. One that a kill left half made is not valid: it is dropped and made again. CONCURRENTLY waits
for every older snapshot in the database, whoever has it. Where one stays for too long, the indexes of this wiki are
made without it, which waits for locks on its own tables alone, and keeps its writers waiting meanwhile.
"""

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Lock, Thread

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from wikiholt.errors import LockTimeout, WikiholtError
from wikiholt.storage.postgres import locks
from wikiholt.storage.postgres.pool import Connection, RoleConnections
from wikiholt.storage.postgres.schema import HNSW_MIN_CHUNKS, SizedIndex, list_sized_indexes
from wikiholt.storage.postgres.timeouts import (
    INDEX_LOCK_TIMEOUT_S,
    INDEX_STATEMENT_TIMEOUT_S,
    OPERATOR_LOCK_TIMEOUT_S,
    OPERATOR_STATEMENT_TIMEOUT_S,
)

_LOG = logging.getLogger(__name__)
_SELECT_INDEXES = (
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
)
_MAX_BUILD_MEGABYTES = 512
_MAX_RETRIES = 6
"""How often a wiki whose tables are locked is tried again; after that its next sync asks for it."""
_RETRY_DELAY_S = 2.0
"""Before the first of them; twice as long before each next."""


@dataclass(frozen=True, slots=True)
class _BuildRequest:
    door: RoleConnections
    hnsw_from: int
    retries: int = 0
    not_before: float = 0.0
    """By the monotonic clock."""


class IndexBuilder:
    """Tends one wiki after the other in a thread of its own, so that nobody has to wait for a large index.

    The thread ends with the process: what it was at is made again by the next who tends that wiki.
    """

    def __init__(self, first_wait_s: float = 5.0) -> None:
        """`patience`: seconds that who asks first waits, so that a short-lived process gets something done."""
        self._first_wait_s = first_wait_s
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._requests: dict[str, _BuildRequest] = {}
        self._thread: Thread | None = None

    def request(self, connections: RoleConnections, schema: str, hnsw_min_chunks: int = HNSW_MIN_CHUNKS) -> None:
        """Have the schema tended soon; never fails."""
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            self._requests[schema] = _BuildRequest(connections, hnsw_min_chunks)
            begun = self._thread is None
            if begun:
                self._thread = Thread(target=self._run, name="wikiholt-tending", daemon=True)
                self._thread.start()
        if begun:
            self.wait_idle(self._first_wait_s)

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; says whether that is so."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return self._thread is None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._requests:
                    self._thread = None
                    return
                schema = min(self._requests, key=lambda each: self._requests[each].not_before)
                request = self._requests[schema]
                delay = request.not_before - time.monotonic()
                if delay <= 0:
                    del self._requests[schema]
            if delay > 0:
                time.sleep(min(delay, 0.2))  # meanwhile another may be asked for
                continue
            try:
                build_missing_indexes(request.door, schema, request.hnsw_from)
            except LockTimeout:
                self._retry(schema, request)
            except (WikiholtError, psycopg.Error) as error:
                _LOG.info("a wiki's indexes were not looked after now: %s", error)

    def _retry(self, schema: str, failed: _BuildRequest) -> None:
        if failed.retries >= _MAX_RETRIES:
            _LOG.warning("%s: its indexes could not be made, for its tables stay locked", schema)
            return
        not_before = time.monotonic() + _RETRY_DELAY_S * 2**failed.retries
        with self._lock:
            self._requests.setdefault(schema, replace(failed, retries=failed.retries + 1, not_before=not_before))


def build_missing_indexes(
    connections: RoleConnections, schema: str, hnsw_min_chunks: int = HNSW_MIN_CHUNKS
) -> list[str]:
    """Make the indexes that the schema's generations lack by their size, and name them.

    Another node that is at it is left to it. What cannot be made now is tried again the next time. Raises LockTimeout
    where locks on the wiki's tables are in the way.
    """
    with connections.with_subject(schema).read_connection() as db:
        name = f"indexes {schema}"
        if not any(_find_missing_indexes(db, schema, hnsw_min_chunks)) or not locks.claim_build(db, name):
            return []
        try:
            maker = _ConcurrentIndexBuilder(db, schema)
            return [each.name for each in list(_find_missing_indexes(db, schema, hnsw_min_chunks)) if maker.build(each)]
        finally:
            locks.release_build(db, name)


def _find_missing_indexes(db: Connection, schema: str, hnsw_min_chunks: int) -> Iterator[SizedIndex]:
    """The indexes that are due and not there, or not valid."""
    order = sql.SQL("SELECT number, dimensions, pages, chunks FROM {}.state WHERE condition <> 'aside'")
    generations = db.execute(order.format(sql.Identifier(schema))).fetchall()
    grown = [
        each
        for number, dimensions, pages, chunks in generations
        for each in list_sized_indexes(number, dimensions, hnsw_min_chunks, chunks)
        if pages >= each.min_pages and chunks >= each.min_chunks
    ]
    if not grown:
        return
    known: dict[str, bool] = dict(db.execute(_SELECT_INDEXES, (schema,)).fetchall())
    yield from (each for each in grown if not known.get(each.name))


class _ConcurrentIndexBuilder:
    """Makes the indexes of one schema."""

    def __init__(self, db: Connection, schema: str) -> None:
        self._db = db
        self._schema = schema
        self._method = "CONCURRENTLY "

    def build(self, index: SizedIndex) -> bool:
        """Whether it could be made; raises LockNotAvailable."""
        db = self._db
        self._set_timeouts(INDEX_STATEMENT_TIMEOUT_S, INDEX_LOCK_TIMEOUT_S)
        try:
            _raise_build_memory(db, index.build_megabytes)
            self._build(index)
        except LockNotAvailable:
            raise
        except psycopg.Error as error:
            _LOG.warning("the index %s of a wiki could not be made now (code %s)", index.name, error.sqlstate)
            return False
        finally:
            self._set_timeouts(OPERATOR_STATEMENT_TIMEOUT_S, OPERATOR_LOCK_TIMEOUT_S)
            db.execute("RESET maintenance_work_mem")
        return True

    def _build(self, index: SizedIndex) -> None:
        try:
            self._create(index)
        except LockNotAvailable:
            if not self._method:
                raise
            _LOG.warning("%s: indexes are made while its writers wait, for a session has an old snapshot", self._schema)
            self._method = ""
            self._set_timeouts(INDEX_STATEMENT_TIMEOUT_S, OPERATOR_LOCK_TIMEOUT_S)
            self._create(index)

    def _create(self, index: SizedIndex) -> None:
        name, table = sql.Identifier(self._schema, index.name), sql.Identifier(self._schema, index.table)
        how = sql.SQL(self._method)
        self._db.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(name))
        create = sql.SQL("CREATE INDEX {}{} ON {} ").format(how, sql.Identifier(index.name), table)
        self._db.execute(create + sql.SQL(index.definition))
        self._db.execute(sql.SQL("ANALYZE {}").format(table))  # or the planner would not know what it is good for

    def _set_timeouts(self, statement_s: float, lock_s: float) -> None:
        order = "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false)"
        self._db.execute(order, (f"{statement_s:.3f}s", f"{lock_s:.3f}s"))


def _raise_build_memory(db: Connection, megabytes: int) -> None:
    """Let what is built lie in the server's memory, within reason: beside it, it takes many times as long."""
    wanted = min(megabytes, _MAX_BUILD_MEGABYTES)
    order = "SELECT set_config('maintenance_work_mem', %s, false) WHERE pg_size_bytes(current_setting(%s)) < %s"
    db.execute(order, (f"{wanted}MB", "maintenance_work_mem", wanted << 20))
