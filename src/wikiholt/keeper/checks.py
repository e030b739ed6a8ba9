"""Full checks by schedule: one at a time, spread over the day, resting longer than they work. Used by one thread.

Between them the bytes of every index in use are compared with those its last writer left; indexes that are too large
for that are checked fully as often as a small share of one core allows.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, WikiholtError, WikiNotFound
from wikiholt.healing import Healing
from wikiholt.keeper.board import Board
from wikiholt.keeper.entries import Entry, spread
from wikiholt.model import Proof
from wikiholt.service import Service

_LOG = logging.getLogger(__name__)

_FIRST = 10.0
"""Seconds after the start in which there is better to do."""
_ROUND = 60.0
"""Seconds between two looks at which wikis are due."""
_AGAIN = 600.0
"""Seconds until a check is tried again that could not be made."""
_STRETCH = 0.01
"""Seconds a check works before it rests."""
_SHARE = 0.01
"""How much of one core's time comparing may take, and checking what cannot be compared."""
_EASE, _EASE_AT_WORK = 3.0, 9.0
"""For every second of work so many of rest: while nothing else is to be done, and while syncs are at work or wait."""


class Checks:
    """Looks through the indexes of all wikis on a board, each about every `every` seconds."""

    def __init__(self, service: Service, board: Board, every: float, rest: Callable[[float], None]) -> None:
        self._service = service
        self._board = board
        self._every = every
        self._rest = rest
        self._due: dict[str, float] = {}
        self._ended: dict[str, float] = {}
        """By wiki whose index cannot be compared: when its last check ended."""
        self._took_s: dict[str, float] = {}
        """By wiki: how long its last check worked, without rests."""
        self._compare_from = 0.0

    def run(self) -> None:
        """Go round until the keeper stops."""
        self._rest(min(_FIRST, self._every))
        while not self._board.stopping:
            self.go_round()
            self._rest(min(_ROUND, self._every / 4))

    def go_round(self) -> None:
        """Check what is due."""
        entries = self._board.all()
        known, self._due = self._due, {}
        for entry in entries:
            due = known.get(entry.wiki.id)
            self._due[entry.wiki.id] = self._first(entry) if due is None else due
        self._compare_all(entries)
        for entry in entries:
            if self._board.stopping:
                return
            # A backup is read to its end as well: if the index was found broken by that, it is not to wait.
            found = isinstance(entry.backup_error, IndexCorrupt)
            if found or self._due[entry.wiki.id] <= time.monotonic():
                entry.backup_error = None if found else entry.backup_error
                self._due[entry.wiki.id] = time.monotonic() + self._checked(entry)

    def _compare_all(self, entries: Sequence[Entry]) -> None:
        """Compare the indexes that are in use, unless the last time is too short ago for what it took."""
        began = time.monotonic()
        if began < self._compare_from:
            return
        for entry in entries:
            handle = self._service.in_use(entry.wiki.id)
            if handle is None or self._board.stopping:
                continue
            try:
                proof = handle.compare()
            except WikiholtError:
                continue  # what is broken is noted by now; anything else the next search says
            if proof is Proof.TOO_LARGE:
                self._hasten(entry.wiki.id)
        took = time.monotonic() - began
        self._compare_from = began + took / _SHARE

    def _hasten(self, wiki_id: str) -> None:
        """Have an index that cannot be compared checked as soon as its share of the time allows."""
        pause = sum(self._took_s.get(each, 0.0) for each in self._ended) / _SHARE
        soon = self._ended[wiki_id] + max(_ROUND, pause) if wiki_id in self._ended else 0.0
        self._due[wiki_id] = min(self._due[wiki_id], soon)
        self._ended.setdefault(wiki_id, time.monotonic())

    def _first(self, entry: Entry) -> float:
        """When to check a wiki that this process has not: at once if its files are not as they were left."""
        store = self._service.workshop.store
        try:
            if not store.sealed(entry.wiki.id):
                return 0.0
        except WikiholtError:
            return 0.0
        last = Healing(entry.wiki.id, entry.wiki.slug, store).health.checked_at
        waited = (datetime.now(UTC) - last).total_seconds() if last else -1.0
        if waited >= 0:
            return time.monotonic() + max(0.0, self._every - waited)
        return time.monotonic() + spread(0, self._every)

    def _checked(self, entry: Entry) -> float:
        """Check one wiki; returns in how many seconds to do so again."""
        try:
            handle = self._service.background(entry.wiki.slug)
            if handle.wiki.id != entry.wiki.id:
                return _AGAIN
            began = time.thread_time()
            health = handle.examine(self._easing())
            self._took_s[entry.wiki.id] = time.thread_time() - began
            if entry.wiki.id in self._ended:
                self._ended[entry.wiki.id] = time.monotonic()
        except (Busy, WikiNotFound, IndexMissing):
            return min(_AGAIN, self._every)
        except WikiholtError as error:
            _LOG.warning("%s: its index could not be checked: %s", entry.wiki.slug, error.message)
            return min(_AGAIN, self._every)
        except Exception:  # noqa: BLE001 - a fault met in one wiki must not end the thread that serves all
            _LOG.exception("%s: a fault of Wikiholt's own", entry.wiki.slug)
            return min(_AGAIN, self._every)
        self._board.count["checks"] += 1
        self._board.count["broken_found"] += not health.well
        return self._every * spread(0.9, 1.1)

    def _easing(self) -> Callable[[], bool]:
        """What a check is to ask in between: it is held up while it has worked long enough, and told when to stop."""
        began = time.monotonic()

        def stop() -> bool:
            nonlocal began
            worked = time.monotonic() - began
            if worked > _STRETCH and not self._board.stopping:
                self._rest(worked * (_EASE_AT_WORK if self._board.at_work() else _EASE))
                began = time.monotonic()
            return self._board.stopping

        return stop
