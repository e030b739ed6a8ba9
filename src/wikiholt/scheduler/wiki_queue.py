"""Who is next: wikis wait in a line, once each, those that somebody waits for before those that are only due."""

from collections import OrderedDict
from enum import IntEnum

_MAX_SKIPS = 8
"""So many are let past at most before one of those that only wait their turn is taken."""


class SyncPriority(IntEnum):
    """Why a wiki waits; the smaller goes first."""

    INTERACTIVE = 0
    NOTIFIED = 1
    SCHEDULED = 2


class WikiQueue:
    """First come, first served within a rank; no rank starves. Not for several threads without a lock around it."""

    def __init__(self) -> None:
        self._queues: tuple[OrderedDict[str, None], ...] = tuple(OrderedDict() for _ in SyncPriority)
        self._skipped = 0

    def add(self, wiki_id: str, priority: SyncPriority) -> None:
        """Have a wiki wait; one that waits already keeps its place, or moves up to the better rank's end."""
        if any(wiki_id in self._queues[better] for better in SyncPriority if better <= priority):
            return
        self.remove(wiki_id)
        self._queues[priority][wiki_id] = None

    def remove(self, wiki_id: str) -> None:
        for waiting in self._queues:
            waiting.pop(wiki_id, None)

    def pop(self, *, urgent_only: bool = False) -> str | None:
        """The wiki whose turn it is, out of the line; `urgent_only` leaves those alone that are only due."""
        if self._skipped >= _MAX_SKIPS and self._queues[SyncPriority.SCHEDULED] and not urgent_only:
            self._skipped = 0
            return self._queues[SyncPriority.SCHEDULED].popitem(last=False)[0]
        for rank in SyncPriority:
            if rank is SyncPriority.SCHEDULED and urgent_only:
                break
            if self._queues[rank]:
                self._skipped = (
                    self._skipped + 1
                    if rank is not SyncPriority.SCHEDULED and self._queues[SyncPriority.SCHEDULED]
                    else 0
                )
                return self._queues[rank].popitem(last=False)[0]
        return None

    @property
    def has_urgent(self) -> bool:
        """Whether somebody waits for one of those that wait."""
        return bool(self._queues[SyncPriority.INTERACTIVE] or self._queues[SyncPriority.NOTIFIED])

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __contains__(self, wiki_id: object) -> bool:
        return any(wiki_id in waiting for waiting in self._queues)
