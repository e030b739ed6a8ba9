"""Builds the database indexes of wikis in the background, as the operator.

A generation that has grown gets database indexes. They are built CONCURRENTLY, beside readers and writers. An index
left invalid by a crash is dropped and built again. CONCURRENTLY waits for every older snapshot in the database. If one
stays open too long, the indexes of this wiki are built without CONCURRENTLY, which waits only for locks on its own
tables but blocks its writers.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock, Thread

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from wikiholt.errors import LockTimeout, WikiholtError
from wikiholt.index.postgres import locks
from wikiholt.index.postgres.locks import (
    INDEX_LOCK_TIMEOUT_S,
    INDEX_STATEMENT_TIMEOUT_S,
    OPERATOR_LOCK_TIMEOUT_S,
    OPERATOR_STATEMENT_TIMEOUT_S,
)
from wikiholt.index.postgres.pool import Connection, RoleConnections
from wikiholt.index.postgres.schema import (
    HNSW_MIN_CHUNKS,
    SizedIndex,
    list_sized_indexes,
)

_LOG = logging.getLogger(__name__)
_SELECT_INDEXES = (
    "SELECT c.relname, i.indisvalid FROM unnest(%s::text[]) AS name JOIN pg_index i ON i.indrelid = to_regclass(name)"
    " JOIN pg_class c ON c.oid = i.indexrelid"
)
_MAX_BUILD_MEGABYTES = 512
_MAX_RETRIES = 6
"""Retries for a wiki whose tables are locked. After that its next sync requests the indexes again."""
_RETRY_DELAY_S = 2.0


class IndexBuilder:
    """Builds missing indexes in a background thread, one wiki at a time.

    The thread ends with the process; the next request for the wiki builds an unfinished index again.
    """

    def __init__(self, first_wait_s: float = 5.0) -> None:
        """The first request waits up to `first_wait_s`, so that a short-lived process completes some work."""
        self._first_wait_s = first_wait_s
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._requests: dict[str, tuple[Callable[[], object], int]] = {}
        """By schema, in order: what builds its indexes, and how often that has failed because of locks."""
        self._thread: Thread | None = None

    def request(self, connections: RoleConnections, schema: str, hnsw_min_chunks: int = HNSW_MIN_CHUNKS) -> None:
        """Build the missing indexes of a schema soon. Never raises."""
        if self._process != os.getpid():
            self._reset()
        with self._lock:
            self._requests[schema] = partial(build_missing_indexes, connections, schema, hnsw_min_chunks), 0
            is_first = self._thread is None
            if is_first:
                self._thread = Thread(target=self._run, name="wikiholt-indexes", daemon=True)
                self._thread.start()
        if is_first:
            self.wait_idle(self._first_wait_s)

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        """Wait until no request is left. Returns whether that is so."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        return self._thread is None

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._requests:
                    self._thread = None
                    return
                schema = next(iter(self._requests))
                build, failures = self._requests.pop(schema)
            try:
                build()
            except LockTimeout:
                if failures == _MAX_RETRIES:
                    _LOG.warning("%s: indexes could not be built because its tables stay locked", schema)
                    continue
                with self._lock:  # after all others
                    self._requests.setdefault(schema, (build, failures + 1))
                time.sleep(_RETRY_DELAY_S)
            except (WikiholtError, psycopg.Error) as error:
                _LOG.info("%s: indexes could not be checked: %s", schema, error)


def build_missing_indexes(
    connections: RoleConnections, schema: str, hnsw_min_chunks: int = HNSW_MIN_CHUNKS
) -> list[str]:
    """Build the missing indexes of the schema's generations and return their names.

    Returns an empty list if another node is building them. Skips an index that fails; the next call tries it again.
    Raises LockTimeout if the wiki's tables are locked.
    """
    with connections.with_subject(schema).read_connection() as db:
        name = f"indexes {schema}"
        if not any(_find_missing_indexes(db, schema, hnsw_min_chunks)) or not locks.claim_build(db, name):
            return []
        try:
            builder = _ConcurrentIndexBuilder(db, schema)
            missing = list(_find_missing_indexes(db, schema, hnsw_min_chunks))
            return [index.name for index in missing if builder.build(index)]
        finally:
            locks.release_build(db, name)


def _find_missing_indexes(db: Connection, schema: str, hnsw_min_chunks: int) -> Iterator[SizedIndex]:
    """Find the indexes that the generations need by their size and that are missing or invalid."""
    statement = sql.SQL(
        "SELECT number, dimensions, pages, chunks FROM {}.state WHERE condition <> 'aside'"
    )  # only generations have one
    generations = db.execute(statement.format(sql.Identifier(schema))).fetchall()
    needed = [
        index
        for number, dimensions, pages, chunks in generations
        for index in list_sized_indexes(number, dimensions, hnsw_min_chunks, chunks)
        if pages >= index.min_pages and chunks >= index.min_chunks
    ]
    if not needed:
        return
    tables = sorted({f"{schema}.{index.table}" for index in needed})
    is_valid: dict[str, bool] = dict(db.execute(_SELECT_INDEXES, (tables,)).fetchall())
    yield from (index for index in needed if not is_valid.get(index.name))


class _ConcurrentIndexBuilder:
    """Builds the indexes of one schema."""

    def __init__(self, db: Connection, schema: str) -> None:
        self._db = db
        self._schema = schema
        self._method = "CONCURRENTLY "

    def build(self, index: SizedIndex) -> bool:
        """Build an index. Returns whether it succeeded. Raises LockNotAvailable."""
        db = self._db
        self._set_timeouts(INDEX_STATEMENT_TIMEOUT_S, INDEX_LOCK_TIMEOUT_S)
        try:
            _raise_build_memory(db, index.build_megabytes)
            self._build(index)
        except LockNotAvailable:
            raise
        except psycopg.Error as error:
            _LOG.warning("%s: the index %s could not be built (code %s)", self._schema, index.name, error.sqlstate)
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
            _LOG.warning(
                "%s: building indexes with writers blocked, because a session has an old snapshot", self._schema
            )
            self._method = ""
            self._set_timeouts(INDEX_STATEMENT_TIMEOUT_S, OPERATOR_LOCK_TIMEOUT_S)
            self._create(index)

    def _create(self, index: SizedIndex) -> None:
        name, table = sql.Identifier(self._schema, index.name), sql.Identifier(self._schema, index.table)
        method = sql.SQL(self._method)
        self._db.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(name))
        kind = sql.SQL("UNIQUE INDEX" if index.unique else "INDEX")
        create = sql.SQL("CREATE {} {}{} ON {} ").format(kind, method, sql.Identifier(index.name), table)
        self._db.execute(create + sql.SQL(index.definition))
        self._db.execute(sql.SQL("ANALYZE {}").format(table))  # without statistics the planner may not use the index

    def _set_timeouts(self, statement_s: float, lock_s: float) -> None:
        statement = "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false)"
        self._db.execute(statement, (f"{statement_s:.3f}s", f"{lock_s:.3f}s"))


def _raise_build_memory(db: Connection, megabytes: int) -> None:
    """Raise maintenance_work_mem within limits: building an index outside memory takes many times as long."""
    target = min(megabytes, _MAX_BUILD_MEGABYTES)
    statement = "SELECT set_config('maintenance_work_mem', %s, false) WHERE pg_size_bytes(current_setting(%s)) < %s"
    db.execute(statement, (f"{target}MB", "maintenance_work_mem", target << 20))
