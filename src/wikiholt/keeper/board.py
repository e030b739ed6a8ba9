"""What all threads of a keeper share: the wikis, when each is due, and the two lines they wait in. One lock."""

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Condition

from wikiholt.keeper.entries import Counters, Entry, Standing
from wikiholt.keeper.line import Line, Rank
from wikiholt.model import Wiki


class Board:
    """Every method may be called from any thread."""

    def __init__(self) -> None:
        self.changed = Condition()
        self.stopping = False
        self.declined: set[tuple[str, str]] = set()
        """Places of wikis that were removed while this process ran: not to be found again by itself."""
        self.count: Counter[str] = Counter()
        self._entries: dict[str, Entry] = {}
        self._due: list[tuple[float, str]] = []
        self._syncs = Line()
        self._fetches = Line()

    def get(self, wiki_id: str) -> Entry | None:
        return self._entries.get(wiki_id)

    def all(self) -> Sequence[Entry]:
        with self.changed:
            return list(self._entries.values())

    def adopt(self, wiki: Wiki, interval: float, rank: Rank | None = None) -> Entry:
        """Begin to look after a wiki, or take up its new settings; with a rank it is put in line at once."""
        with self.changed:
            self.declined.discard(wiki.place)
            entry = self._entries.get(wiki.id)
            if entry is None:
                entry = self._entries[wiki.id] = Entry(wiki, interval, 0.0)
            elif entry.wiki != wiki:
                entry.wiki, entry.interval, entry.looked, entry.revision = wiki, interval, False, None
                entry.forgiven()
            else:
                return entry
            if rank is None:
                self.schedule(entry, 0.0)
            else:
                self.schedule(entry, time.monotonic() + interval)
                self.put(entry, rank)
            return entry

    def forget(self, wiki_id: str) -> None:
        """The wiki was removed."""
        with self.changed:
            entry = self._entries.get(wiki_id)
            if entry is not None:
                self.declined.add(entry.wiki.place)
                self.release(wiki_id)

    def release(self, wiki_id: str) -> None:
        """The wiki is another node's from now on; what is being done for it here ends at its next pause."""
        with self.changed:
            entry = self._entries.pop(wiki_id, None)
            if entry is not None:
                self._syncs.drop(wiki_id)
                self._fetches.drop(wiki_id)
                entry.turns += 1
                self.changed.notify_all()

    def put(self, entry: Entry, rank: Rank) -> None:
        """Have a wiki wait for its turn; if it is having one, for another."""
        with self.changed:
            if entry.wiki.id not in self._entries:
                return
            if entry.running:
                entry.again = rank if entry.again is None else min(entry.again, rank)
            else:
                self._syncs.put(entry.wiki.id, rank)
                self.changed.notify_all()

    def put_fetch(self, entry: Entry, rank: Rank) -> None:
        with self.changed:
            if entry.wiki.id in self._entries:
                self._fetches.put(entry.wiki.id, rank)
                self.changed.notify_all()

    def waits(self, entry: Entry) -> bool:
        return entry.wiki.id in self._syncs

    def leave(self, entry: Entry) -> None:
        """Out of the line again: there is no use in a turn now."""
        with self.changed:
            self._syncs.drop(entry.wiki.id)

    def turns(self, *, urgent_only: bool = False) -> Iterator[Entry]:
        """The wikis whose turn to be synced it is, as they come, until the keeper stops."""
        while (entry := self._take(self._syncs, urgent_only)) is not None:
            yield entry

    def fetches(self) -> Iterator[Entry]:
        """The wikis whose remote is to be fetched from, as they come, until the keeper stops."""
        while (entry := self._take(self._fetches, urgent_only=False)) is not None:
            yield entry

    def _take(self, line: Line, urgent_only: bool) -> Entry | None:
        """Wait for the next in line; None when the keeper stops."""
        with self.changed:
            self.changed.wait_for(lambda: self.stopping or (line.urgent if urgent_only else len(line)))
            wiki_id = None if self.stopping else line.take(urgent_only=urgent_only)
            if wiki_id is None:
                return None
            entry = self._entries[wiki_id]
            if line is self._syncs:
                entry.running, entry.again = True, None
            return entry

    def ended(self, entry: Entry, then: Callable[[Rank | None], Rank | None]) -> None:
        """A turn has ended; `then` makes of what was asked for in the middle of it why there is to be another."""
        with self.changed:
            asked, entry.again = entry.again, None
            entry.running, entry.activity = False, None
            entry.turns += 1
            rank = then(asked)
            if rank is not None:
                self.put(entry, rank)
            self.changed.notify_all()

    def schedule(self, entry: Entry, at: float) -> None:
        """Look at the wiki next at this time of the monotonic clock."""
        with self.changed:
            entry.due = at
            heapq.heappush(self._due, (at, entry.wiki.id))
            if self._due[0][0] == at:
                self.changed.notify_all()

    def due(self) -> Iterator[Entry]:
        """The wikis that are to be looked at, each when it is, until the keeper stops."""
        while True:
            with self.changed:
                entry = self._next_due()
                while entry is None:
                    if self.stopping:
                        return
                    self.changed.wait(self._due[0][0] - time.monotonic() if self._due else None)
                    entry = self._next_due()
            yield entry

    def _next_due(self) -> Entry | None:
        now = time.monotonic()
        while not self.stopping and self._due and self._due[0][0] <= now:
            at, wiki_id = heapq.heappop(self._due)
            entry = self._entries.get(wiki_id)
            if entry is not None and entry.due == at:
                return entry
        return None

    def others_wait(self) -> bool:
        return len(self._syncs) > 0

    def at_work(self) -> bool:
        """Whether a wiki has its turn or waits for one."""
        return len(self._syncs) > 0 or any(entry.running for entry in self._entries.copy().values())

    def urgent_wait(self) -> bool:
        return self._syncs.urgent

    def standing(self, entry: Entry) -> Standing:
        with self.changed:
            return Standing(
                waiting=entry.wiki.id in self._syncs or entry.wiki.id in self._fetches,
                missing=entry.missing,
                failures=entry.failures,
                error=entry.error,
                next_try_seconds=max(0.0, entry.retry_at - time.monotonic()) if entry.failures else 0.0,
                synced_revision=entry.revision,
                backup_error=entry.backup_error,
            )

    def counters(self) -> Counters:
        with self.changed:
            entries = self._entries.values()
            return replace(
                Counters(**self.count),
                wikis=len(entries),
                waiting=len(self._syncs) + len(self._fetches),
                running=sum(entry.running for entry in entries),
                missing=sum(entry.missing for entry in entries),
                failing=sum(entry.failures > 0 for entry in entries),
                healing=sum(not entry.well and not entry.failures for entry in entries),
                broken=sum(not entry.well and entry.failures > 0 for entry in entries),
            )

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()
