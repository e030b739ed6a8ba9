"""Full checks by schedule: one at a time, spread over the day, resting longer than they work. Used by one thread.

Between them the bytes of every index in use are compared with those its last writer left; indexes that are too large
for that are checked fully as often as a small share of one core allows.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from wikiholt.errors import Busy, IndexCorrupt, IndexMissing, WikiholtError, WikiNotFound
from wikiholt.healing import IndexRepair
from wikiholt.keeper.board import SchedulerState
from wikiholt.keeper.entries import WikiEntry, jitter
from wikiholt.model import VerificationResult
from wikiholt.service import WikiService

_LOG = logging.getLogger(__name__)

_CHECK_START_DELAY_S = 10.0
"""Seconds after the start in which there is better to do."""
_CHECK_POLL_S = 60.0
"""Seconds between two looks at which wikis are due."""
_CHECK_RETRY_S = 600.0
"""Seconds until a check is tried again that could not be made."""
_CHECK_SLICE_S = 0.01
"""Seconds a check works before it rests."""
_MAX_CPU_SHARE = 0.01
"""How much of one core's time comparing may take, and checking what cannot be compared."""
_CHECK_REST_RATIO, _CHECK_REST_RATIO_BUSY = 3.0, 9.0
"""For every second of work so many of rest: while nothing else is to be done, and while syncs are at work or wait."""


class ScheduledChecks:
    """Looks through the indexes of all wikis on a board, each about every `every` seconds."""

    def __init__(self, service: WikiService, state: SchedulerState, interval_s: float, sleep: Callable[[float], None]) -> None:
        self._service = service
        self._state = state
        self._interval_s = interval_s
        self._sleep = sleep
        self._due_at: dict[str, float] = {}
        self._finished_at: dict[str, float] = {}
        """By wiki whose index cannot be compared: when its last check ended."""
        self._duration_s: dict[str, float] = {}
        """By wiki: how long its last check worked, without rests."""
        self._next_compare_at = 0.0

    def run(self) -> None:
        """Go round until the keeper stops."""
        self._sleep(min(_CHECK_START_DELAY_S, self._interval_s))
        while not self._state.stopping:
            self.run_once()
            self._sleep(min(_CHECK_POLL_S, self._interval_s / 4))

    def run_once(self) -> None:
        """Check what is due."""
        entries = self._state.list_entries()
        known, self._due_at = self._due_at, {}
        for entry in entries:
            due = known.get(entry.wiki.id)
            self._due_at[entry.wiki.id] = self._get_first_due(entry) if due is None else due
        self._compare_all(entries)
        for entry in entries:
            if self._state.stopping:
                return
            # A backup is read to its end as well: if the index was found broken by that, it is not to wait.
            found = isinstance(entry.backup_error, IndexCorrupt)
            if found or self._due_at[entry.wiki.id] <= time.monotonic():
                entry.backup_error = None if found else entry.backup_error
                self._due_at[entry.wiki.id] = time.monotonic() + self._run_check(entry)

    def _compare_all(self, entries: Sequence[WikiEntry]) -> None:
        """Compare the indexes that are in use, unless the last time is too short ago for what it took."""
        began = time.monotonic()
        if began < self._next_compare_at:
            return
        for entry in entries:
            handle = self._service.is_in_use(entry.wiki.id)
            if handle is None or self._state.stopping:
                continue
            try:
                proof = handle.compare()
            except WikiholtError:
                continue  # what is broken is noted by now; anything else the next search says
            if proof is VerificationResult.TOO_LARGE:
                self._check_soon(entry.wiki.id)
        took = time.monotonic() - began
        self._next_compare_at = began + took / _MAX_CPU_SHARE

    def _check_soon(self, wiki_id: str) -> None:
        """Have an index that cannot be compared checked as soon as its share of the time allows."""
        pause = sum(self._duration_s.get(each, 0.0) for each in self._finished_at) / _MAX_CPU_SHARE
        soon = self._finished_at[wiki_id] + max(_CHECK_POLL_S, pause) if wiki_id in self._finished_at else 0.0
        self._due_at[wiki_id] = min(self._due_at[wiki_id], soon)
        self._finished_at.setdefault(wiki_id, time.monotonic())

    def _get_first_due(self, entry: WikiEntry) -> float:
        """When to check a wiki that this process has not: at once if its files are not as they were left."""
        store = self._service.components.store
        try:
            if not store.is_unmodified(entry.wiki.id):
                return 0.0
        except WikiholtError:
            return 0.0
        last = IndexRepair(entry.wiki.id, entry.wiki.slug, store).health.checked_at
        waited = (datetime.now(UTC) - last).total_seconds() if last else -1.0
        if waited >= 0:
            return time.monotonic() + max(0.0, self._interval_s - waited)
        return time.monotonic() + jitter(0, self._interval_s)

    def _run_check(self, entry: WikiEntry) -> float:
        """Check one wiki; returns in how many seconds to do so again."""
        try:
            handle = self._service.get_background_handle(entry.wiki.slug)
            if handle.wiki.id != entry.wiki.id:
                return _CHECK_RETRY_S
            began = time.thread_time()
            health = handle.check_integrity(self._make_throttle())
            self._duration_s[entry.wiki.id] = time.thread_time() - began
            if entry.wiki.id in self._finished_at:
                self._finished_at[entry.wiki.id] = time.monotonic()
        except (Busy, WikiNotFound, IndexMissing):
            return min(_CHECK_RETRY_S, self._interval_s)
        except WikiholtError as error:
            _LOG.warning("%s: its index could not be checked: %s", entry.wiki.slug, error.message)
            return min(_CHECK_RETRY_S, self._interval_s)
        except Exception:  # noqa: BLE001 - a fault met in one wiki must not end the thread that serves all
            _LOG.exception("%s: a fault of Wikiholt's own", entry.wiki.slug)
            return min(_CHECK_RETRY_S, self._interval_s)
        self._state.counts["checks"] += 1
        self._state.counts["broken_found"] += not health.is_ok
        return self._interval_s * jitter(0.9, 1.1)

    def _make_throttle(self) -> Callable[[], bool]:
        """What a check is to ask in between: it is held up while it has worked long enough, and told when to stop."""
        began = time.monotonic()

        def stop() -> bool:
            nonlocal began
            worked = time.monotonic() - began
            if worked > _CHECK_SLICE_S and not self._state.stopping:
                self._sleep(worked * (_CHECK_REST_RATIO_BUSY if self._state.is_busy() else _CHECK_REST_RATIO))
                began = time.monotonic()
            return self._state.stopping

        return stop
