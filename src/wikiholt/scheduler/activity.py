"""Progress of the sync or reindex that is running for a wiki, stored so that other processes can read it."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime

from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.scheduler.wiki_records import WikiActivity

_REPORT_INTERVAL_S = 1.0
"""Seconds between two reports."""


class ActivityReporter:
    """Reports progress for one wiki. `report()` never raises; progress is best effort."""

    def __init__(self, write_note: Callable[[str], None]) -> None:
        self._write_note = write_note
        self._reported_at = 0.0

    def report(self, activity: WikiActivity) -> None:
        """Store the progress, at most once a second."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_INTERVAL_S:
            return
        self._reported_at = now
        self._write_note(json.dumps({**asdict(activity), "since": activity.since.isoformat()}))


@contextmanager
def lock_activity(store: IndexStore, wiki_id: str) -> Iterator[ActivityReporter]:
    """Acquire the wiki's activity lock across processes. Raises Busy if it is held, and StorageError."""
    with store.activity_lock(wiki_id) as write_note:
        yield ActivityReporter(write_note)


def read_activity(store: IndexStore, wiki_id: str) -> WikiActivity | None:
    """The activity of any process for the wiki, or None."""
    try:
        note = json.loads(store.get_activity(wiki_id) or "")
        return WikiActivity(**{**note, "since": datetime.fromisoformat(note["since"])})
    except (ValueError, TypeError, KeyError):
        return None
