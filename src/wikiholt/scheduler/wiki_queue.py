"""A queue of wikis with priorities. Each wiki is queued at most once."""

from collections import OrderedDict
from enum import IntEnum

_MAX_SKIPS = 8
"""After this many wikis of higher priority, one scheduled wiki is taken."""


class SyncPriority(IntEnum):
    """Why a wiki is queued. Lower values go first."""

    INTERACTIVE = 0
    NOTIFIED = 1
    SCHEDULED = 2


class WikiQueue:
    """First in, first out within a priority. No priority starves. Not thread-safe."""

    def __init__(self) -> None:
        self._queues: tuple[OrderedDict[str, None], ...] = tuple(OrderedDict() for _ in SyncPriority)
        self._skipped = 0

    def add(self, wiki_id: str, priority: SyncPriority) -> None:
        """Add a wiki. A queued wiki keeps its position, or moves to the end of a higher priority."""
        if any(wiki_id in self._queues[better] for better in SyncPriority if better <= priority):
            return
        self.remove(wiki_id)
        self._queues[priority][wiki_id] = None

    def remove(self, wiki_id: str) -> None:
        for queue in self._queues:
            queue.pop(wiki_id, None)

    def pop(self, *, urgent_only: bool = False) -> str | None:
        """Remove and return the next wiki, or None. `urgent_only` ignores scheduled wikis."""
        if self._skipped >= _MAX_SKIPS and self._queues[SyncPriority.SCHEDULED] and not urgent_only:
            self._skipped = 0
            return self._queues[SyncPriority.SCHEDULED].popitem(last=False)[0]
        for priority in SyncPriority:
            if priority is SyncPriority.SCHEDULED and urgent_only:
                break
            if self._queues[priority]:
                scheduled = self._queues[SyncPriority.SCHEDULED]
                skips = priority is not SyncPriority.SCHEDULED and scheduled
                self._skipped = self._skipped + 1 if skips else 0
                return self._queues[priority].popitem(last=False)[0]
        return None

    @property
    def has_urgent(self) -> bool:
        """Whether a wiki with a higher priority than scheduled is queued."""
        return bool(self._queues[SyncPriority.INTERACTIVE] or self._queues[SyncPriority.NOTIFIED])

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __contains__(self, wiki_id: object) -> bool:
        return any(wiki_id in queue for queue in self._queues)
