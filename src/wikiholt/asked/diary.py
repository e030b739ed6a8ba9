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
from wikiholt.model import QueryBounds, Searched
from wikiholt.ports import QueryLog

_LOG = logging.getLogger(__name__)

_ROOM = 1000
"""Entries of a wiki that may wait: two thousand searches a second for as long as a batch is gathered."""
_GATHER = 0.5
"""Seconds in which a batch is gathered."""
_AGAIN = 5.0
"""Seconds until a log that could not be written is tried again."""
_PATIENCE = 5.0
"""Seconds that the end of a process waits for what is left."""


class Diary:
    """What one wiki was asked and is not written yet. Bound to that wiki's log."""

    def __init__(self, log: QueryLog, scribe: "Scribe", room: int = _ROOM) -> None:
        self._log = log
        self._scribe = scribe
        self._room = room
        self._waiting: deque[Searched] = deque()
        self._lost = 0
        self._failing = False
        self._not_before = 0.0
        self._pid = os.getpid()

    def note(self, searched: Searched) -> None:
        """Have this written down soon; takes microseconds, and loses it where there is no room."""
        if self._pid != os.getpid():
            self._waiting, self._lost, self._pid = deque(), 0, os.getpid()
        if len(self._waiting) >= self._room:
            self._lost += 1
            self._scribe.lost += 1
            return
        self._waiting.append(searched)
        self._scribe.wake(self)

    def discard(self) -> None:
        """Forget what is not written yet: its wiki is being removed, or its log was cleared."""
        self._waiting = deque()

    def due(self, now: float) -> bool:
        return now >= self._not_before

    def write(self) -> bool:
        """Write what waits; whether all of it is written. For the scribe alone; never raises."""
        lost, waiting = self._lost, self._waiting
        try:
            batch = list(waiting.copy())
            if not batch:
                return True
            self._log.write([replace(batch[0], lost=lost), *batch[1:]], self._scribe.bounds)
        except Exception as error:  # noqa: BLE001 - whatever it is costs the log, and nobody's search
            self._failed(error)
            return False
        self._failing = False
        self._lost -= lost
        self._scribe.written += len(batch)
        for _ in batch:
            waiting.popleft()
        return not self._waiting

    def _failed(self, error: Exception) -> None:
        self._not_before = time.monotonic() + _AGAIN
        if not self._failing:
            self._failing = True
            why = error.message if isinstance(error, WikiholtError) else type(error).__name__
            _LOG.warning("searches of a wiki cannot be written down (%s); they are tried again", why)


class Scribe:
    """Writes diaries. Nothing runs until the first search is noted."""

    def __init__(self, log_of: Callable[[str], QueryLog], bounds: QueryBounds, gather: float = _GATHER) -> None:
        self.log_of = log_of
        self.bounds = bounds
        self.written = 0
        self.lost = 0
        self._gather = gather
        self._begin()

    def _begin(self) -> None:
        self._changed = Condition()
        self._due: dict[Diary, None] = {}
        self._thread: Thread | None = None
        self._closing = False
        self._pid = os.getpid()

    def wake(self, diary: Diary) -> None:
        """There is something in this diary."""
        if self._pid != os.getpid():
            self._begin()
        with self._changed:
            if self._closing or diary in self._due:
                return
            if self._thread is None:
                thread = Thread(target=self._run, name="wikiholt-queries", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads may be started; the next search tries again
                    return
                self._thread = thread
            self._due[diary] = None
            self._changed.notify()

    def close(self) -> None:
        """Write what there is, as far as that can be done in a few seconds, and take nothing more."""
        if self._pid != os.getpid():
            self._begin()  # the lock may be held by a thread of the parent
        with self._changed:
            self._closing = True
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(_PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._closing)
                self._changed.wait_for(lambda: self._closing, self._gather)
                last, due = self._closing, self._due
                now = time.monotonic()
                self._due = {} if last else {diary: None for diary in due if not diary.due(now)}
            for diary in due:
                if (last or diary.due(now)) and not diary.write() and not last:
                    with self._changed:
                        self._due[diary] = None
            if last:
                return
