"""What is done for one wiki: a look at its HEAD, a turn of syncing, a fetch. None of it raises; one harms no other."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime

from wikiholt.batches import Pause, Paused
from wikiholt.errors import (
    Busy,
    DatabaseAway,
    LockTimeout,
    NoCommits,
    SourceError,
    SourceMissing,
    WikiholtError,
    WikiNotFound,
)
from wikiholt.handle import WikiHandle
from wikiholt.keeper.board import Board
from wikiholt.keeper.desk import Desk, sitting
from wikiholt.keeper.entries import Activity, Entry, Pace, spread
from wikiholt.keeper.jobs import read_job
from wikiholt.keeper.line import Rank
from wikiholt.keeper.reindexing import Reindexing
from wikiholt.keeper.standings import share
from wikiholt.service import Service
from wikiholt.sync import Progress

_LOG = logging.getLogger(__name__)

_BUSY_DELAY = 1.0
"""Seconds until a wiki is tried again that another process was writing."""
_MAX_LOCK_DELAY_S = 60.0
"""The longest until a wiki is tried again whose index somebody keeps locked in the database."""
_MAX_LOCK_TIMEOUTS = 10
_TRUST = 600.0
"""Seconds for which a node takes it that nobody writes an index it looks after: a login for every look is dear."""
_SOON = 1.0
"""Seconds a sync may go on while somebody waits for another wiki."""


class Turns:
    """Bound to a service and a board; which wiki it works for, each call says by its entry."""

    def __init__(self, service: Service, board: Board, pace: Pace, me: str, *, many: bool = False) -> None:
        """With `many` nodes, each tells the others how its wikis stand."""
        self._service = service
        self._board = board
        self._pace = pace
        self._me = me
        self._many = many

    def look(self, entry: Entry) -> None:
        """Compare HEAD with what the index stands for, by files alone, and put the wiki in line where they differ."""
        now = time.monotonic()
        first = not entry.looked
        self._board.schedule(entry, now + entry.interval * (spread(0.5, 1.0) if first else 1.0))
        if entry.running or self._board.waits(entry):
            return
        if entry.postponed is not None:
            rank, entry.postponed = entry.postponed, None
            self._board.put(entry, rank)
        elif entry.failures and now < entry.retry_at and entry.failed_head is None:
            return  # git itself would have to be asked, and has been
        elif entry.remote:
            self._board.put_fetch(entry, Rank.DUE)
        elif entry.failures and now >= entry.retry_at:
            self._board.put(entry, Rank.DUE)
        else:
            self._guarded(entry, None, lambda: self._compare(entry))

    def _compare(self, entry: Entry) -> None:
        self._board.count["looks"] += 1
        if not entry.looked:
            # What a writer that was killed with the process before left undone is done now.
            self._service.source(entry.wiki).fetch()
        head = self._service.source(entry.wiki).head()
        entry.missing = False
        if entry.failures:
            changed = head != entry.failed_head
        else:
            entry.job = entry.job or (not entry.looked and self._has_job(entry))
            if not entry.looked and self._service.workshop.store.published(entry.wiki.id) is not None:
                self._note(entry, self._service.background(entry.wiki.slug))
            changed = not self.settled(entry, head, trusting=self._many)
        if changed or entry.job:
            self._board.put(entry, Rank.DUE)

    def turn(self, entry: Entry) -> None:
        """Bring the index to HEAD, then go on with a reindexing if there is one; let others go first in between."""
        result = _Result()
        self._guarded(entry, result, lambda: self._work(entry, result))
        if result.paused:
            entry.begun = True
            self._board.count["pauses"] += 1
        self._board.ended(entry, lambda asked: self._next(entry, result, asked))

    def _next(self, entry: Entry, result: "_Result", asked: Rank | None) -> Rank | None:
        """Why the wiki is to have another turn after this one, if it is; what was asked for meanwhile says so too."""
        if result.busy:
            # Somebody else is writing it: no failure, and perhaps all that was to be done.
            entry.postponed = Rank.DUE if asked is None else asked
            delay = min(_BUSY_DELAY * 2**entry.lock_timeouts, _MAX_LOCK_DELAY_S)
            self._board.schedule(entry, time.monotonic() + delay)
            return None
        if result.paused and not (result.reindexing and asked is not None):
            return Rank.DUE
        return asked

    def _work(self, entry: Entry, result: "_Result") -> None:
        handle = self._service.background(entry.wiki.slug)
        if handle.wiki.id != entry.wiki.id:
            raise WikiNotFound("this wiki was removed meanwhile", hint="`wikiholt list` shows the wikis there are")
        if self._service.leaving(entry.wiki.id):
            raise Busy("this wiki is being removed", hint="wait a moment")
        try:
            result.head = self._service.source(entry.wiki).head()
        except SourceError:
            if not entry.well:
                handle.sync(patience=0)  # it fails too, but not before a backup answers in the broken one's place
            raise
        entry.missing = False
        if not self.settled(entry, result.head):
            self._note(entry, handle)
        if not self.settled(entry, result.head):
            with self._sitting(entry) as desk:
                self._synced(entry, handle, result.head, desk)
        entry.begun = False
        entry.forgiven()
        entry.job = self._has_job(entry)
        if entry.job:
            result.reindexing = True
            with self._sitting(entry) as desk:
                self._reindexing(entry, desk).go_on(handle, self._pause(entry, reindexing=True))
            self._board.count["reindexes"] += 1
            self._note(entry, handle)

    def _synced(self, entry: Entry, handle: WikiHandle, head: str, desk: Desk) -> None:
        self._note(entry, handle)
        if self.settled(entry, head):
            return  # whoever sat here before has done it, and no model need be loaded
        self._tell(entry, "sync", Progress(0, 0, 0), desk)
        handle.sync(lambda done: self._tell(entry, "sync", done, desk), self._pause(entry), patience=0)
        self._board.count["syncs"] += 1
        self._note(entry, handle)

    def _sitting(self, entry: Entry) -> AbstractContextManager[Desk]:
        return sitting(self._service.workshop.store, entry.wiki.id)

    def fetch(self, entry: Entry) -> None:
        """Fetch from a wiki's remote and put the wiki in line where that brought something."""
        began = time.monotonic()
        self._tell(entry, "fetch", Progress(0, 0, 0))
        result = _Result()
        self._guarded(entry, result, lambda: self._fetched(entry, began))
        if not entry.running:
            entry.activity = None
        with self._board.changed:
            entry.turns += 1
            self._board.changed.notify_all()

    def _fetched(self, entry: Entry, began: float) -> None:
        self._service.background(entry.wiki.slug).fetch(lambda: self._board.stopping)
        source = self._service.source(entry.wiki)
        self._board.count["fetches"] += 1
        entry.fetched_at = began
        head = source.head()
        entry.missing = False
        if entry.failures and head == entry.failed_head and began < entry.retry_at:
            return
        if not self.settled(entry, head, trusting=self._many) or entry.job:
            self._board.put(entry, Rank.ASKED if entry.urgent else Rank.DUE)
        entry.urgent = False

    def settled(self, entry: Entry, head: str, *, trusting: bool = False) -> bool:
        """Whether the index is known to stand for this HEAD; opens nothing.

        Who trusts does not ask the store every time whether somebody else has written it.
        """
        if entry.revision != head or (trusting and time.monotonic() < entry.trusted_until):
            return entry.revision == head
        entry.trusted_until = time.monotonic() + spread(0.5, 1.0) * _TRUST
        return entry.stamp == self._service.workshop.store.stamp(entry.wiki.id)

    def _note(self, entry: Entry, handle: WikiHandle) -> None:
        """Read what the index stands for, and by what its files can be recognised as unchanged."""
        store = self._service.workshop.store
        before = store.stamp(entry.wiki.id)
        revision = handle.settled_at()
        entry.looked, entry.well = True, handle.health.well
        entry.revision, entry.stamp = (revision, before) if store.stamp(entry.wiki.id) == before else (None, "")

    def _has_job(self, entry: Entry) -> bool:
        return read_job(self._service.workshop.store, entry.wiki.id).open

    def _guarded(self, entry: Entry, result: "_Result | None", work: Callable[[], None]) -> None:
        try:
            work()
        except Paused:
            if result is not None:
                result.paused = True
        except (Busy, DatabaseAway) as error:
            if isinstance(error, LockTimeout):  # a try takes a worker for seconds: ever fewer of them
                entry.lock_timeouts = min(entry.lock_timeouts + 1, _MAX_LOCK_TIMEOUTS)
            # Neither is the wiki's fault: it is tried again soon, however long that goes on.
            if result is not None:
                result.busy = True
        except SourceMissing as error:
            # A disk comes back by itself and costs nothing to look at; a remote that is gone is asked ever less often.
            (self._failed if entry.remote else self._missing)(entry, None, error)
        except WikiholtError as error:
            self._failed(entry, result.head if result else None, error)
        except Exception as error:  # noqa: BLE001 - a fault met in one wiki must not end the thread that serves all
            _LOG.exception("%s: a fault of Wikiholt's own", entry.wiki.slug)
            self._failed(entry, result.head if result else None, WikiholtError(f"{type(error).__name__}: {error}"))
        if self._many and self._board.get(entry.wiki.id) is entry:
            share(self._service.workshop.store, entry)

    def _missing(self, entry: Entry, _: str | None, error: WikiholtError) -> None:
        if not self._registered(entry):
            return
        if not entry.missing:
            _LOG.warning("%s: its repository is not there; its index is kept", entry.wiki.slug)
        entry.missing = entry.looked = True
        self._reindexing(entry).fail(error)

    def _failed(self, entry: Entry, head: str | None, error: WikiholtError) -> None:
        if self._board.stopping or not self._registered(entry):
            return
        with self._board.changed:
            entry.failed(error, head, time.monotonic())
            entry.looked = True
            self._board.leave(entry)
            self._board.count["failures"] += 1
        # An empty repository is no news the second time.
        level = logging.DEBUG if isinstance(error, NoCommits) and entry.failures > 1 else logging.WARNING
        _LOG.log(level, "%s: %s (failure %d in a row)", entry.wiki.slug, error.message, entry.failures)
        self._reindexing(entry).fail(error)

    def _registered(self, entry: Entry) -> bool:
        try:
            self._service.registry.by_id(entry.wiki.id)
        except WikiNotFound:
            self._board.forget(entry.wiki.id)
            return False
        except WikiholtError:
            return True
        return True

    def _reindexing(self, entry: Entry, desk: Desk | None = None) -> Reindexing:
        store = self._service.workshop.store
        return Reindexing(entry, store, self._me, lambda done: self._tell(entry, "reindex", done, desk))

    def _pause(self, entry: Entry, *, reindexing: bool = False) -> Callable[[], Pause]:
        """What a sync that begins now is to ask in between."""
        board, began = self._board, time.monotonic()

        def pause() -> Pause:
            if board.stopping:
                return Pause.AT_ONCE
            took = time.monotonic() - began
            asked = board.urgent_wait() or (reindexing and entry.again is not None)
            long = took > self._pace.slice and board.others_wait()
            # The index that answers during a reindexing is to follow HEAD.
            due = reindexing and took > max(self._pace.slice, entry.interval)
            soon = asked and took > min(_SOON, self._pace.slice)
            given_up = board.get(entry.wiki.id) is not entry  # another node goes on
            return Pause.AFTER_THIS if long or due or soon or given_up else Pause.GO_ON

        return pause

    def _tell(self, entry: Entry, kind: str, done: Progress, desk: Desk | None = None) -> None:
        known = entry.activity
        since = known.since if known is not None and known.kind == kind else datetime.now(UTC)
        entry.activity = Activity(kind, since, done.pages_done, done.pages_total, done.chunks_embedded)
        if desk is not None:
            desk.tell(entry.activity)


class _Result:
    """How a turn went, for what follows it."""

    __slots__ = ("busy", "head", "paused", "reindexing")

    def __init__(self) -> None:
        self.head: str | None = None
        self.paused = self.busy = self.reindexing = False
