"""Backups by schedule: one at a time, only of what has changed, resting longer than it works. Used by one thread."""

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from wikiholt.errors import Busy, DatabaseUnavailable, IndexMissing, WikiholtError, WikiNotFound
from wikiholt.keeper.board import SchedulerState
from wikiholt.keeper.entries import WikiEntry
from wikiholt.model import BackupReason
from wikiholt.service import WikiService

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

    def __init__(self, service: WikiService, state: SchedulerState, interval_s: float, sleep: Callable[[float], None]) -> None:
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
