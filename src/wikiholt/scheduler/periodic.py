"""Scheduled backups and scheduled integrity checks of all wikis. Each runs in one thread, one wiki at a time, and
sleeps longer than it works."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from wikiholt.domain.index import VerificationResult
from wikiholt.domain.wiki import BackupReason
from wikiholt.errors import Busy, DatabaseUnavailable, IndexCorrupt, IndexMissing, WikiholtError, WikiNotFound
from wikiholt.indexing.repair import IndexRepair
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.wiki_records import WikiEntry, jitter
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)

_BACKUP_REST_RATIO = 4.0
"""Seconds of sleep per second of work."""

_CHECK_SLICE_S = 0.01
"""Seconds a check works before it sleeps."""
_MAX_CPU_SHARE = 0.01
"""Share of one core for comparing checksums, and for full checks of indexes that are too large to compare."""
_CHECK_REST_RATIO, _CHECK_REST_RATIO_BUSY = 3.0, 9.0
"""Seconds of sleep per second of work: while the scheduler is idle, and while syncs run or wait."""


class _PeriodicTask(ABC):
    """Processes every wiki of the scheduler about every `interval_s` seconds. Used by one thread."""

    start_delay_s: ClassVar[float]
    poll_s: ClassVar[float]
    """Seconds between two rounds."""
    retry_s: ClassVar[float]
    """Maximum delay before work that failed or was not possible is tried again."""
    _failure_message: ClassVar[str]

    def __init__(
        self, service: WikiService, state: SchedulerState, interval_s: float, sleep: Callable[[float], None]
    ) -> None:
        self._service = service
        self._state = state
        self._interval_s = interval_s
        self._sleep = sleep
        self._due_at: dict[str, float] = {}

    def run(self) -> None:
        """Run rounds until the scheduler stops."""
        self._sleep(min(self.start_delay_s, self._interval_s))
        while not self._state.stopping:
            self.run_once()
            self._sleep(min(self.poll_s, self._interval_s / 4))

    def run_once(self) -> None:
        """Process the wikis that are due."""
        entries = self._state.list_entries()
        known, self._due_at = self._due_at, {}
        for entry in entries:
            due_at = known.get(entry.wiki.id)
            self._due_at[entry.wiki.id] = self._get_first_due(entry) if due_at is None else due_at
        self._start_round(entries)
        for entry in entries:
            if self._state.stopping:
                return
            if self._is_due(entry):
                self._due_at[entry.wiki.id] = time.monotonic() + self._process_safely(entry)

    def _process_safely(self, entry: WikiEntry) -> float:
        """Process one wiki and return the seconds until the next time. Never raises, so that one wiki's failure
        does not affect the others."""
        try:
            return self._process(entry)
        except WikiholtError as error:
            return self._record_failure(entry, error)
        except Exception as error:  # noqa: BLE001 - the thread serves all wikis and must not end
            _LOG.exception("%s: internal error", entry.wiki.slug)
            return self._record_failure(entry, WikiholtError(f"{type(error).__name__}: {error}"))

    def _record_failure(self, entry: WikiEntry, error: WikiholtError) -> float:
        _LOG.warning(self._failure_message, entry.wiki.slug, error.message)
        return self._get_retry_delay()

    def _get_retry_delay(self) -> float:
        return min(self.retry_s, self._interval_s)

    def _is_due(self, entry: WikiEntry) -> bool:
        return self._due_at[entry.wiki.id] <= time.monotonic()

    def _get_first_due(self, entry: WikiEntry) -> float:  # noqa: ARG002 - for subclasses
        """When a wiki that is new to this task is due, by the monotonic clock."""
        return 0.0

    @abstractmethod
    def _start_round(self, entries: Sequence[WikiEntry]) -> None:
        """Work to do once per round."""

    @abstractmethod
    def _process(self, entry: WikiEntry) -> float:
        """Process one wiki and return the seconds until the next time."""


class ScheduledBackups(_PeriodicTask):
    """Backs up all wikis that have changed, and the registry."""

    start_delay_s = 60.0
    poll_s = 300.0
    """Also the minimum interval between two backups of the registry."""
    retry_s = 3600.0
    _failure_message = "%s: no backup could be made: %s"

    def _start_round(self, entries: Sequence[WikiEntry]) -> None:  # noqa: ARG002
        try:
            self._service.remove_leftovers()
            self._service.registry.backups.create_if_changed(self.poll_s)
        except IndexMissing:
            return
        except (WikiholtError, OSError) as error:
            self._state.counts["backup_failures"] += 1
            _LOG.warning("no backup of the registry could be made: %s", error)

    def _is_due(self, entry: WikiEntry) -> bool:
        return super()._is_due(entry) and not entry.running

    def _process(self, entry: WikiEntry) -> float:
        began = time.monotonic()
        try:
            return self._create_backup(entry)
        except (Busy, DatabaseUnavailable, WikiNotFound, IndexMissing):
            return 0.0  # not a failure: a wiki that was never synced is backed up after its first sync
        finally:
            self._sleep(_BACKUP_REST_RATIO * (time.monotonic() - began))

    def _create_backup(self, entry: WikiEntry) -> float:
        backups = self._service.get_background_handle(entry.wiki.slug).backups
        newest = backups.find_newest()
        if newest is not None:
            age = (datetime.now(UTC) - newest.taken_at).total_seconds()
            if 0 <= age < self._interval_s:
                return self._interval_s - age
        current = backups.ensure_current(BackupReason.SCHEDULED, lambda: self._state.stopping)
        self._state.counts["backups"] += newest is None or current.name != newest.name
        entry.backup_error = None
        return self._interval_s

    def _record_failure(self, entry: WikiEntry, error: WikiholtError) -> float:
        self._state.counts["backup_failures"] += 1
        entry.backup_error = error
        return super()._record_failure(entry, error)


class ScheduledChecks(_PeriodicTask):
    """Checks the entire index of every wiki about every `interval_s` seconds, spread over that time.

    In between, the checksum of every index in use is compared with the one its last writer left. Indexes too large for
    that are checked in full as often as `_MAX_CPU_SHARE` allows.
    """

    start_delay_s = 10.0
    poll_s = 60.0
    retry_s = 600.0
    _failure_message = "%s: the index could not be checked: %s"

    def __init__(
        self, service: WikiService, state: SchedulerState, interval_s: float, sleep: Callable[[float], None]
    ) -> None:
        super().__init__(service, state, interval_s, sleep)
        self._finished_at: dict[str, float] = {}
        """Wiki id → end of the last check, for indexes too large to compare."""
        self._duration_s: dict[str, float] = {}
        """Wiki id → CPU time of the last check."""
        self._next_compare_at = 0.0

    def _start_round(self, entries: Sequence[WikiEntry]) -> None:
        """Compare the checksums of indexes in use, unless the last round was too recent for the time it took."""
        began = time.monotonic()
        if began < self._next_compare_at:
            return
        for entry in entries:
            handle = self._service.get_handle_in_use(entry.wiki.id)
            if handle is None or self._state.stopping:
                continue
            try:
                result = handle.compare()
            except WikiholtError:
                continue  # damage has been reported by now; the next search raises any other error
            if result is VerificationResult.TOO_LARGE:
                self._check_soon(entry.wiki.id)
        took = time.monotonic() - began
        self._next_compare_at = began + took / _MAX_CPU_SHARE

    def _check_soon(self, wiki_id: str) -> None:
        """Schedule a full check of an index that is too large to compare, as soon as the CPU share allows."""
        pause = sum(self._duration_s.get(large_id, 0.0) for large_id in self._finished_at) / _MAX_CPU_SHARE
        due_at = self._finished_at[wiki_id] + max(self.poll_s, pause) if wiki_id in self._finished_at else 0.0
        self._due_at[wiki_id] = min(self._due_at[wiki_id], due_at)
        self._finished_at.setdefault(wiki_id, time.monotonic())

    def _get_first_due(self, entry: WikiEntry) -> float:
        """Immediately if the files were modified since the last write, else by the time of the last check."""
        store = self._service.components.store
        try:
            if not store.is_unmodified(entry.wiki.id):
                return 0.0
        except WikiholtError:
            return 0.0
        checked_at = IndexRepair(entry.wiki.id, entry.wiki.slug, store).health.checked_at
        age = (datetime.now(UTC) - checked_at).total_seconds() if checked_at else -1.0
        if age >= 0:
            return time.monotonic() + max(0.0, self._interval_s - age)
        return time.monotonic() + jitter(0, self._interval_s)

    def _is_due(self, entry: WikiEntry) -> bool:
        if isinstance(entry.backup_error, IndexCorrupt):
            # A backup also reads the entire index. If it found damage, check immediately.
            entry.backup_error = None
            return True
        return super()._is_due(entry)

    def _process(self, entry: WikiEntry) -> float:
        try:
            handle = self._service.get_background_handle(entry.wiki.slug)
            if handle.wiki.id != entry.wiki.id:
                return self.retry_s
            began = time.thread_time()
            handle.check_integrity(self._make_throttle())
        except (Busy, WikiNotFound, IndexMissing):
            return self._get_retry_delay()
        self._duration_s[entry.wiki.id] = time.thread_time() - began
        if entry.wiki.id in self._finished_at:
            self._finished_at[entry.wiki.id] = time.monotonic()
        self._state.counts["checks"] += 1
        return self._interval_s * jitter(0.9, 1.1)

    def _make_throttle(self) -> Callable[[], bool]:
        """A `stop` callback for a check. It sleeps after each slice of work, and returns true on shutdown."""
        began = time.monotonic()

        def stop() -> bool:
            nonlocal began
            worked = time.monotonic() - began
            if worked > _CHECK_SLICE_S and not self._state.stopping:
                self._sleep(worked * (_CHECK_REST_RATIO_BUSY if self._state.is_busy() else _CHECK_REST_RATIO))
                began = time.monotonic()
            return self._state.stopping

        return stop
