"""The indexes of generations that have grown, made beside readers and writers; by the operator, never in a search.

Each is made CONCURRENTLY. One that a kill left half made is not valid: it is dropped and made again.
"""

import logging
import os
from collections.abc import Iterator
from threading import Lock, Thread

import psycopg
from psycopg import sql

from wikiholt.errors import WikiholtError
from wikiholt.stores.postgres.pool import Connection, Door
from wikiholt.stores.postgres.tables import HNSW_FROM, Sized, sized

_LOG = logging.getLogger(__name__)
_KNOWN = (
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
    " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s"
)
_LOCK = "SELECT pg_try_advisory_lock(hashtextextended('tending ' || %s, 0))"
_UNLOCK = "SELECT pg_advisory_unlock(hashtextextended('tending ' || %s, 0))"
_MOST_MEGABYTES = 512


class Tender:
    """Tends one wiki after the other in a thread of its own, so that nobody has to wait for a large index.

    The thread ends with the process: what it was at is made again by the next who tends that wiki.
    """

    def __init__(self, patience: float = 5.0) -> None:
        """`patience`: seconds that who asks first waits, so that a short-lived process gets something done."""
        self._patience = patience
        self._begin_process()

    def _begin_process(self) -> None:
        self._process = os.getpid()
        self._lock = Lock()
        self._asked: dict[str, tuple[Door, int]] = {}
        self._thread: Thread | None = None

    def ask(self, door: Door, schema: str, hnsw_from: int = HNSW_FROM) -> None:
        """Have the schema tended soon; never fails."""
        if self._process != os.getpid():
            self._begin_process()
        with self._lock:
            self._asked[schema] = (door, hnsw_from)
            begun = self._thread is None
            if begun:
                self._thread = Thread(target=self._work, name="wikiholt-tending", daemon=True)
                self._thread.start()
        if begun:
            self.settle(self._patience)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait until nothing is left to do; says whether that is so."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
        return self._thread is None

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._asked:
                    self._thread = None
                    return
                schema = next(iter(self._asked))
                door, hnsw_from = self._asked.pop(schema)
            try:
                tend(door, schema, hnsw_from)
            except (WikiholtError, psycopg.Error) as error:
                _LOG.info("a wiki's indexes were not looked after now: %s", error)


def tend(door: Door, schema: str, hnsw_from: int = HNSW_FROM) -> list[str]:
    """Make the indexes that the schema's generations lack by their size, and name them.

    Another node that is at it is left to it. What cannot be made now is tried again the next time.
    """
    with door.reading() as db:
        lacking = list(_lacking(db, schema, hnsw_from))
        if not lacking or not _one(db, _LOCK, schema):
            return []
        try:
            lacking = list(_lacking(db, schema, hnsw_from))
            return [each.name for each in lacking if _made(db, schema, each)]
        finally:
            db.execute("RESET statement_timeout")
            _one(db, _UNLOCK, schema)


def _lacking(db: Connection, schema: str, hnsw_from: int) -> Iterator[Sized]:
    """The indexes that are due and not there, or not valid."""
    order = sql.SQL("SELECT number, dimensions, pages, chunks FROM {}.state WHERE condition <> 'aside'")
    generations = db.execute(order.format(sql.Identifier(schema))).fetchall()
    grown = [
        each
        for number, dimensions, pages, chunks in generations
        for each in sized(number, dimensions, hnsw_from, chunks)
        if pages >= each.pages and chunks >= each.chunks
    ]
    if not grown:
        return
    known: dict[str, bool] = dict(db.execute(_KNOWN, (schema,)).fetchall())
    yield from (each for each in grown if not known.get(each.name))


def _made(db: Connection, schema: str, index: Sized) -> bool:
    name, table = sql.Identifier(schema, index.name), sql.Identifier(schema, index.table)
    # A lock on the table is asked for as any other; who stands in the way longer than this is waited for another time.
    db.execute("SET statement_timeout TO 0; SET lock_timeout TO '30s'")
    try:
        _give_room(db, index.megabytes)
        db.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(name))
        create = sql.SQL("CREATE INDEX CONCURRENTLY {} ON {} ").format(sql.Identifier(index.name), table)
        db.execute(create + sql.SQL(index.how))
        db.execute(sql.SQL("ANALYZE {}").format(table))  # or the planner would not know what it is good for
    except psycopg.Error as error:
        _LOG.warning("the index %s of a wiki could not be made now (code %s)", index.name, error.sqlstate)
        return False
    finally:
        db.execute("RESET lock_timeout; RESET maintenance_work_mem")
    return True


def _give_room(db: Connection, megabytes: int) -> None:
    """Let what is built lie in the server's memory, within reason: beside it, it takes many times as long."""
    wanted = min(megabytes, _MOST_MEGABYTES)
    order = "SELECT set_config('maintenance_work_mem', %s, false) WHERE pg_size_bytes(current_setting(%s)) < %s"
    db.execute(order, (f"{wanted}MB", "maintenance_work_mem", wanted << 20))


def _one(db: Connection, order: str, schema: str) -> bool:
    row = db.execute(order, (schema,)).fetchone()
    return bool(row and row[0])
