"""Backups by schedule: one at a time, only of what has changed, resting longer than it works. Used by one thread."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from wikiholt.domain.index import VerificationResult
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import Busy, DatabaseUnavailable, IndexCorrupt, IndexMissing, WikiholtError, WikiNotFound
from wikiholt.indexing.repair import IndexRepair
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.wiki_records import WikiEntry, jitter
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)

_BACKUP_START_DELAY_S = 60.0
"""Seconds after the start in which there is better to do."""
_BACKUP_POLL_S = 300.0
"""Seconds between two looks at which wikis are due, and at whether the registry has changed."""
_BACKUP_RETRY_S = 3600.0
"""Seconds until a backup that failed is tried again, at most."""
_BACKUP_REST_RATIO = 4.0
"""For every second of work so many of rest."""


class ScheduledBackups:
    """Looks after the backups of all wikis on a board, and of the registry."""

    def __init__(
        self, service: WikiService, state: SchedulerState, interval_s: float, sleep: Callable[[float], None]
    ) -> None:
        """`every` is the time between two backups of a wiki that changes, in seconds."""
        self._service = service
        self._state = state
        self._interval_s = interval_s
        self._sleep = sleep
        self._due_at: dict[str, float] = {}

    def run(self) -> None:
        """Go round until the keeper stops."""
        self._sleep(min(_BACKUP_START_DELAY_S, self._interval_s))
        while not self._state.stopping:
            self.run_once()
            self._sleep(min(_BACKUP_POLL_S, self._interval_s / 4))

    def run_once(self) -> None:
        """Back up what is due."""
        self._run_registry_backup()
        entries = self._state.list_entries()
        self._due_at = {entry.wiki.id: self._due_at.get(entry.wiki.id, 0.0) for entry in entries}
        for entry in entries:
            if self._state.stopping:
                return
            began = time.monotonic()
            if self._due_at[entry.wiki.id] > began or entry.running:
                continue
            self._due_at[entry.wiki.id] = began + self._run_backup(entry)
            self._sleep(_BACKUP_REST_RATIO * (time.monotonic() - began))

    def _run_backup(self, entry: WikiEntry) -> float:
        """Back the wiki up if its newest backup is old enough; returns in how many seconds to look again."""
        try:
            backups = self._service.get_background_handle(entry.wiki.slug).backups
            newest = backups.find_newest()
            if newest is not None:
                age = (datetime.now(UTC) - newest.taken_at).total_seconds()
                if 0 <= age < self._interval_s:
                    return self._interval_s - age
            kept = backups.ensure_current(BackupReason.SCHEDULED, lambda: self._state.stopping)
            self._state.counts["backups"] += newest is None or kept.name != newest.name
            entry.backup_error = None
            return self._interval_s
        except (Busy, DatabaseUnavailable, WikiNotFound):
            return 0.0
        except IndexMissing:
            return 0.0  # it was never synced; as soon as it is there is something to keep
        except WikiholtError as error:
            return self._record_failure(entry, error)
        except Exception as error:  # noqa: BLE001 - a fault met in one wiki must not end the thread that serves all
            _LOG.exception("%s: a fault of Wikiholt's own", entry.wiki.slug)
            return self._record_failure(entry, WikiholtError(f"{type(error).__name__}: {error}"))

    def _record_failure(self, entry: WikiEntry, error: WikiholtError) -> float:
        self._state.counts["backup_failures"] += 1
        entry.backup_error = error
        _LOG.warning("%s: no backup could be made: %s", entry.wiki.slug, error.message)
        return min(_BACKUP_RETRY_S, self._interval_s)

    def _run_registry_backup(self) -> None:
        try:
            self._service.registry.backups.create_if_changed(_BACKUP_POLL_S)
        except IndexMissing:
            return
        except (WikiholtError, OSError) as error:
            self._state.counts["backup_failures"] += 1
            _LOG.warning("no backup of the registry could be made: %s", error)


# Full checks by schedule: one at a time, spread over the day, resting longer than they work. Used by one thread.
# Between them the bytes of every index in use are compared with those its last writer left; indexes that are too
# large for that are checked fully as often as a small share of one core allows.


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

    def __init__(
        self, service: WikiService, state: SchedulerState, interval_s: float, sleep: Callable[[float], None]
    ) -> None:
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
