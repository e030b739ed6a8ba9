"""The state shared by all threads of the scheduler: the wikis, when each is due, and two queues. One lock."""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Condition

from wikiholt.domain.wiki import Wiki
from wikiholt.sync.wiki_records import (
    SchedulerCounters,
    SchedulerProgress,
    SyncPriority,
    SyncState,
    WikiEntry,
    WikiQueue,
)


class SchedulerState:
    """Every method may be called from any thread."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.stopping = False
        self.removed_sources: set[tuple[str, str]] = set()
        """Locations of wikis removed while this process ran; discovery must not register them again."""
        self.counts: Counter[str] = Counter()
        self._entries: dict[str, WikiEntry] = {}
        self._due: list[tuple[float, str]] = []
        self._sync_queue = WikiQueue()
        self._fetch_queue = WikiQueue()
        self._hanging: dict[WikiQueue, WikiEntry] = {}
        """The wiki of each queue that may hang and runs now."""

    def get(self, wiki_id: str) -> WikiEntry | None:
        return self._entries.get(wiki_id)

    def list_entries(self) -> Sequence[WikiEntry]:
        with self.changed:
            return list(self._entries.values())

    def add(self, wiki: Wiki, interval_s: float, priority: SyncPriority | None = None) -> WikiEntry:
        """Add a wiki or update its settings. With a priority it is enqueued immediately."""
        with self.changed:
            self.removed_sources.discard(wiki.location)
            entry = self._entries.get(wiki.id)
            if entry is None:
                entry = self._entries[wiki.id] = WikiEntry(wiki, interval_s, 0.0)
            elif entry.wiki != wiki:
                entry.wiki, entry.interval_s, entry.checked, entry.revision = wiki, interval_s, False, None
                entry.clear_failures()
            else:
                return entry
            if priority is None:
                self.schedule(entry, 0.0)
            else:
                self.schedule(entry, time.monotonic() + interval_s)
                self.enqueue(entry, priority)
            return entry

    def remove(self, wiki_id: str) -> None:
        """Remove a deleted wiki."""
        with self.changed:
            entry = self._entries.get(wiki_id)
            if entry is not None:
                self.removed_sources.add(entry.wiki.location)
                self.release(wiki_id)

    def release(self, wiki_id: str) -> None:
        """Stop handling a wiki that is now assigned to another node. A running sync ends at its next pause."""
        with self.changed:
            entry = self._entries.pop(wiki_id, None)
            if entry is not None:
                self._sync_queue.remove(wiki_id)
                self._fetch_queue.remove(wiki_id)
                entry.finished_runs += 1
                self.changed.notify_all()

    def enqueue(self, entry: WikiEntry, priority: SyncPriority) -> None:
        """Enqueue a wiki for a sync, or for another one if a sync is running."""
        with self.changed:
            if entry.wiki.id not in self._entries:
                return
            if entry.running:
                entry.rerun_priority = priority if entry.rerun_priority is None else min(entry.rerun_priority, priority)
            else:
                self._sync_queue.add(entry.wiki.id, priority)
                self.changed.notify_all()

    def enqueue_fetch(self, entry: WikiEntry, priority: SyncPriority) -> None:
        with self.changed:
            if entry.wiki.id in self._entries:
                self._fetch_queue.add(entry.wiki.id, priority)
                self.changed.notify_all()

    def is_queued(self, entry: WikiEntry) -> bool:
        return entry.wiki.id in self._sync_queue

    def dequeue(self, entry: WikiEntry) -> None:
        """Remove a wiki from the sync queue."""
        with self.changed:
            self._sync_queue.remove(entry.wiki.id)

    def iter_syncs(self, *, urgent_only: bool = False) -> Iterator[WikiEntry]:
        """Wikis to sync, in order, until the scheduler stops. Blocks while there is none."""
        return self._iter_queue(self._sync_queue, urgent_only)

    def iter_fetches(self) -> Iterator[WikiEntry]:
        """Wikis to fetch, in order, until the scheduler stops. Blocks while there is none."""
        return self._iter_queue(self._fetch_queue, urgent_only=False)

    def _iter_queue(self, queue: WikiQueue, urgent_only: bool) -> Iterator[WikiEntry]:
        """Wikis of a queue. Those that may hang share one thread, so that they leave the others to other wikis."""
        while True:
            with self.changed:
                while (entry := self._pop(queue, urgent_only)) is None:
                    if self.stopping:
                        return
                    self.changed.wait()
            yield entry
            with self.changed:
                if self._hanging.get(queue) is entry:
                    del self._hanging[queue]
                    self.changed.notify_all()

    def _pop(self, queue: WikiQueue, urgent_only: bool) -> WikiEntry | None:
        if self.stopping:
            return None
        is_free = queue not in self._hanging
        wiki_id = queue.pop(urgent_only=urgent_only, may_run=lambda other: is_free or not self._entries[other].may_hang)
        if wiki_id is None:
            return None
        entry = self._entries[wiki_id]
        if entry.may_hang:
            self._hanging[queue] = entry
        if queue is self._sync_queue:
            entry.running, entry.rerun_priority = True, None
        return entry

    def finish(self, entry: WikiEntry, next_priority: Callable[[SyncPriority | None], SyncPriority | None]) -> None:
        """End a run. `next_priority` maps the priority requested during the run to the one of the next run."""
        with self.changed:
            requested, entry.rerun_priority = entry.rerun_priority, None
            entry.running, entry.activity = False, None
            entry.finished_runs += 1
            priority = next_priority(requested)
            if priority is not None:
                self.enqueue(entry, priority)
            self.changed.notify_all()

    def schedule(self, entry: WikiEntry, due_at: float) -> None:
        """Set when to check the wiki next, by the monotonic clock."""
        with self.changed:
            entry.due_at = due_at
            heapq.heappush(self._due, (due_at, entry.wiki.id))
            if self._due[0][0] == due_at:
                self.changed.notify_all()

    def iter_due(self) -> Iterator[WikiEntry]:
        """Wikis whose check is due, until the scheduler stops. Blocks while there is none."""
        while True:
            with self.changed:
                entry = self._pop_due()
                while entry is None:
                    if self.stopping:
                        return
                    self.changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                    entry = self._pop_due()
            yield entry

    def _pop_due(self) -> WikiEntry | None:
        now = time.monotonic()
        while not self.stopping and self._due and self._due[0][0] <= now:
            due_at, wiki_id = heapq.heappop(self._due)
            entry = self._entries.get(wiki_id)
            if entry is not None and entry.due_at == due_at:
                return entry
        return None

    def has_waiting(self) -> bool:
        return len(self._sync_queue) > 0

    def is_busy(self) -> bool:
        """Whether a sync is running or waiting."""
        return len(self._sync_queue) > 0 or any(entry.running for entry in self._entries.copy().values())

    def has_urgent(self) -> bool:
        return self._sync_queue.has_urgent

    def get_sync_state(self, entry: WikiEntry) -> SyncState:
        with self.changed:
            is_queued = entry.wiki.id in self._sync_queue or entry.wiki.id in self._fetch_queue
            # A run that has no activity yet still compares HEAD: it may find work to do.
            return SyncState(
                waiting=is_queued or (entry.running and entry.activity is None),
                missing=entry.missing,
                failures=entry.failures,
                error=entry.error,
                synced_revision=entry.revision,
                backup_error=entry.backup_error,
            )

    def get_counters(self) -> SchedulerCounters:
        with self.changed:
            entries = self._entries.values()
            return replace(
                SchedulerCounters(**self.counts),
                wikis=len(entries),
                waiting=len(self._sync_queue) + len(self._fetch_queue),
                running=sum(entry.running for entry in entries),
                missing=sum(entry.missing for entry in entries),
                failing=sum(entry.failures > 0 for entry in entries),
                repairing=sum(not entry.index_ok and not entry.failures for entry in entries),
                broken=sum(not entry.index_ok and entry.failures > 0 for entry in entries),
            )

    def get_progress(self) -> SchedulerProgress:
        with self.changed:
            entries = self._entries.values()
            return SchedulerProgress(
                wikis=sum(not entry.is_empty for entry in entries),
                synced=sum(entry.revision is not None for entry in entries),
                failed=sum(entry.revision is None and (entry.missing or entry.failures > 0) for entry in entries),
                running=tuple((entry.wiki.slug, entry.activity) for entry in entries if entry.activity is not None),
            )

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
