"""A wiki's desk: whoever syncs or reindexes it sits there and says how far it is, for other processes to read."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime

from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.scheduler.wiki_records import WikiActivity

_REPORT_INTERVAL_S = 1.0
"""Seconds between two notes."""


class ActivityReporter:
    """A desk one sits at. Telling never fails: how far it is, is not worth a sync."""

    def __init__(self, write_note: Callable[[str], None]) -> None:
        self._write_note = write_note
        self._reported_at = 0.0

    def report(self, activity: WikiActivity) -> None:
        """Leave a note, once a second at most."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_INTERVAL_S:
            return
        self._reported_at = now
        self._write_note(json.dumps({**asdict(activity), "since": activity.since.isoformat()}))


@contextmanager
def lock_activity(store: IndexStore, wiki_id: str) -> Iterator[ActivityReporter]:
    """Sit down at the wiki's desk; raises Busy where another sits, and StorageRefused."""
    with store.activity_lock(wiki_id) as leave:
        yield ActivityReporter(leave)


def read_activity(store: IndexStore, wiki_id: str) -> WikiActivity | None:
    """What is being done for the wiki by whichever process; None when nothing is, or nothing was noted yet."""
    try:
        note = json.loads(store.get_activity(wiki_id) or "")
        return WikiActivity(**{**note, "since": datetime.fromisoformat(note["since"])})
    except (ValueError, TypeError, KeyError):
        return None
