"""A wiki's desk: whoever syncs or reindexes it sits there and says how far it is, for other processes to read."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime

from wikiholt.keeper.entries import Activity
from wikiholt.ports import Store

_EVERY = 1.0
"""Seconds between two notes."""


class Desk:
    """A desk one sits at. Telling never fails: how far it is, is not worth a sync."""

    def __init__(self, leave: Callable[[str], None]) -> None:
        self._leave = leave
        self._told = 0.0

    def tell(self, activity: Activity) -> None:
        """Leave a note, once a second at most."""
        now = time.monotonic()
        if now - self._told < _EVERY:
            return
        self._told = now
        self._leave(json.dumps({**asdict(activity), "since": activity.since.isoformat()}))


@contextmanager
def sitting(store: Store, wiki_id: str) -> Iterator[Desk]:
    """Sit down at the wiki's desk; raises Busy where another sits, and StorageRefused."""
    with store.sitting(wiki_id) as leave:
        yield Desk(leave)


def read_activity(store: Store, wiki_id: str) -> Activity | None:
    """What is being done for the wiki by whichever process; None when nothing is, or nothing was noted yet."""
    try:
        note = json.loads(store.seated(wiki_id) or "")
        return Activity(**{**note, "since": datetime.fromisoformat(note["since"])})
    except (ValueError, TypeError, KeyError):
        return None
