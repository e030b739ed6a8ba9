"""Searches on their way into a query log: no search waits for that, and none fails by it.

A Diary holds what one wiki was asked until it is written; what does not fit into it is counted and lost. The Scribe,
one thread of the process for all wikis, writes what is in diaries, a batch a wiki, about every half second. Both may be
used from any thread. A forked child begins with empty diaries and a thread of its own: what its parent had is written
by the parent.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Condition, Thread

from wikiholt.errors import WikiholtError
from wikiholt.model import QueryRetention, QueryRecord
from wikiholt.ports import QueryLog

_LOG = logging.getLogger(__name__)

_MAX_BUFFERED_RECORDS = 1000
"""Entries of a wiki that may wait: two thousand searches a second for as long as a batch is gathered."""
_BATCH_DELAY_S = 0.5
"""Seconds in which a batch is gathered."""
_RETRY_DELAY_S = 5.0
"""Seconds until a log that could not be written is tried again."""
_CLOSE_TIMEOUT_S = 5.0
"""Seconds that the end of a process waits for what is left."""


class QueryBuffer:
    """What one wiki was asked and is not written yet. Bound to that wiki's log."""

    def __init__(self, log: QueryLog, writer: "QueryLogWriter", capacity: int = _MAX_BUFFERED_RECORDS) -> None:
        self._log = log
        self._writer = writer
        self._capacity = capacity
        self._records: deque[QueryRecord] = deque()
        self._lost = 0
        self._failing = False
        self._not_before = 0.0
        self._pid = os.getpid()

    def add(self, record: QueryRecord) -> None:
        """Have this written down soon; takes microseconds, and loses it where there is no room."""
        if self._pid != os.getpid():
            self._records, self._lost, self._pid = deque(), 0, os.getpid()
        if len(self._records) >= self._capacity:
            self._lost += 1
            self._writer.lost += 1
            return
        self._records.append(record)
        self._writer.notify(self)

    def discard(self) -> None:
        """Forget what is not written yet: its wiki is being removed, or its log was cleared."""
        self._records = deque()

    def is_due(self, now: float) -> bool:
        return now >= self._not_before

    def flush(self) -> bool:
        """Write what waits; whether all of it is written. For the scribe alone; never raises."""
        lost, waiting = self._lost, self._records
        try:
            batch = list(waiting.copy())
            if not batch:
                return True
            self._log.write([replace(batch[0], lost=lost), *batch[1:]], self._writer.retention)
        except Exception as error:  # noqa: BLE001 - whatever it is costs the log, and nobody's search
            self._record_failure(error)
            return False
        self._failing = False
        self._lost -= lost
        self._writer.written += len(batch)
        for _ in batch:
            waiting.popleft()
        return not self._records

    def _record_failure(self, error: Exception) -> None:
        self._not_before = time.monotonic() + _RETRY_DELAY_S
        if not self._failing:
            self._failing = True
            why = error.message if isinstance(error, WikiholtError) else type(error).__name__
            _LOG.warning("searches of a wiki cannot be written down (%s); they are tried again", why)


class QueryLogWriter:
    """Writes diaries. Nothing runs until the first search is noted."""

    def __init__(self, open_log: Callable[[str], QueryLog], retention: QueryRetention, batch_delay_s: float = _BATCH_DELAY_S) -> None:
        self.open_log = open_log
        self.retention = retention
        self.written = 0
        self.lost = 0
        self._batch_delay_s = batch_delay_s
        self._reset()

    def _reset(self) -> None:
        self._changed = Condition()
        self._pending: dict[QueryBuffer, None] = {}
        self._thread: Thread | None = None
        self._closing = False
        self._pid = os.getpid()

    def notify(self, buffer: QueryBuffer) -> None:
        """There is something in this diary."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if self._closing or buffer in self._pending:
                return
            if self._thread is None:
                thread = Thread(target=self._run, name="wikiholt-queries", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads may be started; the next search tries again
                    return
                self._thread = thread
            self._pending[buffer] = None
            self._changed.notify()

    def close(self) -> None:
        """Write what there is, as far as that can be done in a few seconds, and take nothing more."""
        if self._pid != os.getpid():
            self._reset()  # the lock may be held by a thread of the parent
        with self._changed:
            self._closing = True
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing)
                self._changed.wait_for(lambda: self._closing, self._batch_delay_s)
                last, due = self._closing, self._pending
                now = time.monotonic()
                self._pending = {} if last else {diary: None for diary in due if not diary.is_due(now)}
            for diary in due:
                if (last or diary.is_due(now)) and not diary.flush() and not last:
                    with self._changed:
                        self._pending[diary] = None
            if last:
                return
