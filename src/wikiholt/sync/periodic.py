"""Scheduled backups and scheduled integrity checks of all wikis. Each runs in one thread, one wiki at a time."""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import ClassVar

from wikiholt.errors import Busy, DatabaseUnavailable, IndexMissing, WikiholtError, WikiNotFound
from wikiholt.index.repair import IndexRepair
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_records import WikiEntry, jitter
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)

_CHECK_SLICE_S = 0.01
"""Seconds a check works before it sleeps."""
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
    """Backs up the registry, and the pages of wikis that are in no other repository."""

    start_delay_s = 60.0
    poll_s = 300.0
    """Also the minimum interval between two backups of the registry."""
    retry_s = 3600.0
    _failure_message = "%s: no backup could be made: %s"

    def _start_round(self, entries: Sequence[WikiEntry]) -> None:  # noqa: ARG002
        try:
            self._service.remove_leftovers()
            backup = self._service.registry.backups.create_if_changed(self.poll_s)
            self._state.counts["backups"] += backup is not None
        except IndexMissing:
            return
        except (WikiholtError, OSError) as error:
            self._state.counts["backup_failures"] += 1
            _LOG.warning("no backup of the registry could be made: %s", error)

    def _process(self, entry: WikiEntry) -> float:
        try:
            self._service.get_background_handle(entry.wiki.slug).backups.update()
        except (Busy, DatabaseUnavailable, WikiNotFound):
            return 0.0
        entry.backup_error = None
        return self._interval_s

    def _record_failure(self, entry: WikiEntry, error: WikiholtError) -> float:
        self._state.counts["backup_failures"] += 1
        entry.backup_error = error
        return super()._record_failure(entry, error)


class ScheduledChecks(_PeriodicTask):
    """Checks the entire index of every wiki about every `interval_s` seconds, spread over that time."""

    start_delay_s = 10.0
    poll_s = 60.0
    retry_s = 600.0
    _failure_message = "%s: the index could not be checked: %s"

    def _start_round(self, entries: Sequence[WikiEntry]) -> None:
        pass

    def _get_first_due(self, entry: WikiEntry) -> float:
        """By the time of the last check; at a random time if that is unknown."""
        checked_at = IndexRepair(entry.wiki.id, entry.wiki.slug, self._service.components.store).health.checked_at
        age = (datetime.now(UTC) - checked_at).total_seconds() if checked_at else -1.0
        if age >= 0:
            return time.monotonic() + max(0.0, self._interval_s - age)
        return time.monotonic() + jitter(0, self._interval_s)

    def _process(self, entry: WikiEntry) -> float:
        try:
            handle = self._service.get_background_handle(entry.wiki.slug)
            if handle.wiki.id != entry.wiki.id:
                return self.retry_s
            handle.check_integrity(self._make_throttle())
        except (Busy, WikiNotFound, IndexMissing):
            return self._get_retry_delay()
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
