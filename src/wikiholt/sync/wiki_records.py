"""Records of the scheduler: its configuration, its entry and queue of wikis, and the state it reports."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from random import Random
from typing import Any

from wikiholt.domain.protocols import HeadProbe
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import NoCommits, NoPages, NoPagesYet, WikiholtError

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

    def pop(self, *, urgent_only: bool = False, may_run: Callable[[str], bool] = lambda _: True) -> str | None:
        """Remove and return the next wiki that may run, or None. `urgent_only` ignores scheduled wikis."""
        first = {priority: next(filter(may_run, self._queues[priority]), None) for priority in SyncPriority}
        scheduled = first[SyncPriority.SCHEDULED]
        if urgent_only:
            first[SyncPriority.SCHEDULED] = None
        elif self._skipped >= _MAX_SKIPS and scheduled is not None:
            first = {SyncPriority.SCHEDULED: scheduled}
        for priority, wiki_id in first.items():
            if wiki_id is not None:
                skips = priority is not SyncPriority.SCHEDULED and scheduled is not None
                self._skipped = self._skipped + 1 if skips else 0
                del self._queues[priority][wiki_id]
                return wiki_id
        return None

    @property
    def has_urgent(self) -> bool:
        """Whether a wiki with a higher priority than scheduled is queued."""
        return bool(self._queues[SyncPriority.INTERACTIVE] or self._queues[SyncPriority.NOTIFIED])

    def __len__(self) -> int:
        return sum(map(len, self._queues))

    def __contains__(self, wiki_id: object) -> bool:
        return any(wiki_id in queue for queue in self._queues)


# Configuration, entries and counters


_FIRST_RETRY_S = 5.0
_MAX_RETRY_S = 3600.0
_MAX_RETRY_EMPTY_S = 300.0
"""An empty repository or directory is retried more often, because no check can tell when it has its first page."""


# A separate generator, so that code that seeds the global one stays reproducible.
jitter = Random().uniform  # noqa: S311 - only spreads the load


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """Settings of the scheduler."""

    workers: int = 2
    slice_s: float = 10.0
    """Seconds after which a sync pauses for others."""
    discovery_interval_s: float = 10.0
    """Seconds between two searches for new repositories and wikis."""
    get_interval: Callable[[Wiki], float] = lambda _: 60.0
    """Seconds between two checks of a wiki's HEAD."""
    backup_interval_s: float = 0.0
    """Seconds between two backups of a wiki that changes; 0 disables backups."""
    check_interval_s: float = 0.0
    """Seconds between two full checks of a wiki's index; 0 disables checks."""


@dataclass(frozen=True, slots=True)
class WikiActivity:
    """What is running for a wiki: `fetch`, `sync` or `reindex`, and its progress."""

    kind: str
    since: datetime
    pages_done: int = 0
    pages_total: int = 0
    chunks_embedded: int = 0
    chunks_done: int = 0
    """Chunks that the model has embedded, also those of pages that are not committed yet."""
    chunks_expected: int = 0
    """Estimated number of chunks to embed."""
    seconds_left: float | None = None
    """The time until all pages are found by their meaning, in a first sync that has read all pages."""


@dataclass(frozen=True, slots=True)
class SyncState:
    """The scheduler's state of a wiki."""

    waiting: bool = False
    missing: bool = False
    """Whether its repository is missing. Its index is kept and keeps answering."""
    failures: int = 0
    """Number of consecutive failed syncs."""
    error: WikiholtError | None = None
    synced_revision: str | None = None
    """The revision its index is known to have."""
    backup_error: WikiholtError | None = None
    """Why its last scheduled backup failed."""
    watched: bool = False
    """Whether changes of its source are noticed at once, not only by the scheduled checks."""


@dataclass(frozen=True, slots=True)
class SchedulerProgress:
    """How many wikis have pages, how many are at HEAD, how many failed, and what is running for which slug."""

    wikis: int
    synced: int
    failed: int
    running: tuple[tuple[str, WikiActivity], ...]


def _declare_count(text: str, *, is_gauge: bool = False) -> Any:
    """A field with its text in the metrics: a current number, or a count since the start."""
    return field(default=0, metadata={"text": text, "is_gauge": is_gauge})


@dataclass(frozen=True, slots=True)
class SchedulerCounters:
    """The numbers of the scheduler; each is a metric."""

    wikis: int = _declare_count("Registered wikis", is_gauge=True)
    waiting: int = _declare_count("Wikis that wait for a sync", is_gauge=True)
    running: int = _declare_count("Wikis that are being synced", is_gauge=True)
    missing: int = _declare_count("Wikis whose repository is missing", is_gauge=True)
    failing: int = _declare_count("Wikis whose last sync failed", is_gauge=True)
    repairing: int = _declare_count("Wikis whose index is damaged and is being repaired", is_gauge=True)
    broken: int = _declare_count("Wikis whose index could not be repaired", is_gauge=True)
    head_checks: int = _declare_count("HEAD checks")
    syncs: int = _declare_count("Completed syncs")
    pauses: int = _declare_count("Syncs paused for another wiki")
    failures: int = _declare_count("Failed syncs")
    fetches: int = _declare_count("Fetches from remote repositories")
    notifications: int = _declare_count("Change notifications")
    reindexes: int = _declare_count("Requested reindexes")
    backups: int = _declare_count("Scheduled backups")
    backup_failures: int = _declare_count("Failed scheduled backups")
    checks: int = _declare_count("Complete checks of an index")


@dataclass(slots=True)
class WikiEntry:
    """One wiki. Changed only under the scheduler's lock."""

    wiki: Wiki
    interval_s: float
    due_at: float
    """When to check it next, by the monotonic clock."""
    checked: bool = False
    revision: str | None = None
    change_token: str = ""
    trusted_until: float = 0.0
    """Until when the change token need not be compared, by the monotonic clock."""
    head_probe: HeadProbe | None = None
    probed_wiki: Wiki | None = None
    """The wiki that the probe is for: its settings may have changed since."""
    probe_until: float = 0.0
    """When the next check has to be a complete one, by the monotonic clock."""
    activity: WikiActivity | None = None
    running: bool = False
    in_progress: bool = False
    """Whether its sync was paused and has to continue."""
    rerun_priority: SyncPriority | None = None
    """Requested during a run: enqueue it again with this priority when the run ends."""
    retry_priority: SyncPriority | None = None
    """Enqueue it with this priority at the next check, because another process was writing its index."""
    reindexing: bool = False
    """Whether it has an open reindex job."""
    missing: bool = False
    index_ok: bool = True
    """Whether its index is intact, as far as is known."""
    failures: int = 0
    may_hang: bool = False
    """Whether its last run took long and failed, as one that waits for a disk does."""
    failed_head: str | None = None
    error: WikiholtError | None = None
    retry_at: float = 0.0
    finished_runs: int = 0
    fetched_at: float = 0.0
    """When the last successful fetch began."""
    backup_error: WikiholtError | None = None
    lock_timeouts: int = 0
    """How often in a row locking its index in the database timed out."""
    fetch_urgent: bool = False
    """Whether a request waits for the next fetch."""
    published_note: tuple[tuple[object, ...], str] | None = None
    """The state last published to other nodes, and the note."""

    @property
    def is_remote(self) -> bool:
        return not self.wiki.source.startswith("/")

    @property
    def has_mirror(self) -> bool:
        """Whether its pages are read from a mirror, which a fetch brings up to date."""
        return self.is_remote or self.wiki.is_directory

    @property
    def is_empty(self) -> bool:
        """Whether nobody has written a page yet."""
        return isinstance(self.error, NoPagesYet)

    def mark_readable(self) -> None:
        """Record that its source has a HEAD."""
        self.missing = False
        if self.is_empty:
            self.clear_failures()

    def record_failure(self, error: WikiholtError, head: str | None, now: float) -> None:
        """Record a failure. The delay before the next try doubles with each failure, up to an hour."""
        self.failures += 1
        self.error = error
        self.failed_head = head
        max_delay = _MAX_RETRY_EMPTY_S if isinstance(error, NoCommits | NoPages) else _MAX_RETRY_S
        delay = min(max_delay, _FIRST_RETRY_S * 2 ** min(self.failures - 1, 12))
        self.retry_at = now + delay * jitter(0.75, 1.25)

    def clear_failures(self) -> None:
        """Clear failures after a success, or to retry immediately."""
        self.failures, self.failed_head, self.error, self.retry_at = 0, None, None, 0.0
        self.lock_timeouts = 0
