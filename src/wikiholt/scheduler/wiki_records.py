"""What a keeper knows of each wiki, and what it tells about it."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random

from wikiholt.domain.wiki import Wiki
from wikiholt.errors import NoCommits, WikiholtError
from wikiholt.scheduler.wiki_queue import SyncPriority

_FIRST_RETRY_S = 5.0
_MAX_RETRY_S = 3600.0
_MAX_RETRY_EMPTY_S = 300.0
"""A repository without commits is no broken one, but only git can tell when it has its first."""


# The keeper's own: whoever draws from the common one for something repeatable shall not find us there too.
jitter = Random().uniform  # noqa: S311 - only spreads the load


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """How hard a keeper works."""

    workers: int = 2
    slice_s: float = 10.0
    """Seconds after which a sync lets others go first."""
    discovery_interval_s: float = 10.0
    """Seconds between two looks for repositories and newly registered wikis."""
    get_interval: Callable[[Wiki], float] = lambda _: 60.0
    """Seconds between two looks at a wiki's HEAD."""
    backup_interval_s: float = 0.0
    """Seconds between two backups of a wiki that changes; 0 means none."""
    check_interval_s: float = 0.0
    """Seconds between two full checks of a wiki's index; 0 means none."""


@dataclass(frozen=True, slots=True)
class DiscoveredRepository:
    """A repository found in a directory of wikis; with a `reason`, one that cannot be taken up.

    It may take nothing from outside `within`, whoever opens it.
    """

    slug: str
    path: Path
    reason: str = ""
    confined_to: Path | None = None


@dataclass(frozen=True, slots=True)
class WikiActivity:
    """What is being done for a wiki just now: `fetch`, `sync` or `reindex`, and how far it is."""

    kind: str
    since: datetime
    pages_done: int = 0
    pages_total: int = 0
    chunks_embedded: int = 0


@dataclass(frozen=True, slots=True)
class SyncState:
    """How the keeper sees a wiki."""

    waiting: bool
    missing: bool
    """Whether its repository is not there; its index is kept and goes on answering."""
    failures: int
    """How often in a row syncing failed."""
    error: WikiholtError | None
    next_try_seconds: float
    synced_revision: str | None
    """What its index is known to stand for."""
    backup_error: WikiholtError | None = None
    """Why its last backup by schedule could not be made."""


@dataclass(frozen=True, slots=True)
class SchedulerCounters:
    """What a keeper has done since it started, and what lies before it."""

    wikis: int = 0
    waiting: int = 0
    running: int = 0
    missing: int = 0
    failing: int = 0
    repairing: int = 0
    """Wikis whose index proved broken and is being mended."""
    broken: int = 0
    """Those of which that has failed."""
    looks: int = 0
    syncs: int = 0
    pauses: int = 0
    failures: int = 0
    fetches: int = 0
    wakes: int = 0
    reindexes: int = 0
    checks: int = 0
    broken_found: int = 0
    backups: int = 0
    backup_failures: int = 0


@dataclass(slots=True)
class WikiEntry:
    """One wiki. Changed under the keeper's lock only."""

    wiki: Wiki
    interval_s: float
    due_at: float
    """When to look at it next, by the monotonic clock."""
    checked: bool = False
    revision: str | None = None
    change_token: str = ""
    trusted_until: float = 0.0
    """Until when, by the monotonic clock, the stamp need not be compared at every look."""
    activity: WikiActivity | None = None
    running: bool = False
    in_progress: bool = False
    """Whether it has had a turn and did not finish."""
    rerun_priority: SyncPriority | None = None
    """To be put in line once more when its turn ends: somebody asked in the middle of it."""
    retry_priority: SyncPriority | None = None
    """To be put in line at the next look: another process was writing its index."""
    reindexing: bool = False
    """Whether a reindexing is under way."""
    missing: bool = False
    index_ok: bool = True
    """Whether its index is whole, as far as is known."""
    failures: int = 0
    failed_head: str | None = None
    error: WikiholtError | None = None
    retry_at: float = 0.0
    finished_runs: int = 0
    fetched_at: float = 0.0
    """When the last fetch that succeeded began."""
    backup_error: WikiholtError | None = None
    lock_timeouts: int = 0
    """How often in a row the database did not grant a lock on its index in time."""
    fetch_urgent: bool = False
    """Whether somebody waits for what the next fetch brings."""
    published_note: tuple[tuple[object, ...], str] | None = None
    """What other nodes were last told of it: what was known, and the note."""

    @property
    def is_remote(self) -> bool:
        return not self.wiki.source.startswith("/")

    def record_failure(self, error: WikiholtError, head: str | None, now: float) -> None:
        """Note a failure: the next try is twice as far off as the one before, up to an hour."""
        self.failures += 1
        self.error = error
        self.failed_head = head
        longest = _MAX_RETRY_EMPTY_S if isinstance(error, NoCommits) else _MAX_RETRY_S
        delay = min(longest, _FIRST_RETRY_S * 2 ** min(self.failures - 1, 12))
        self.retry_at = now + delay * jitter(0.75, 1.25)

    def clear_failures(self) -> None:
        """Forget failures: it works, or somebody wants it tried at once."""
        self.failures, self.failed_head, self.error, self.retry_at = 0, None, None, 0.0
        self.lock_timeouts = 0
