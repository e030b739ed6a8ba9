"""The keeper: keeps every wiki's index at its HEAD while a service runs. Safe to use from many threads.

Threads: one looks at wikis when they are due, one looks for wikis, `Pace.workers` sync, one more syncs only what
somebody waits for, two fetch from remotes, one backs up, one checks. What they share is the board; what they do for a
wiki is a turn. A wiki has one turn at a time, ends it after `Pace.slice` seconds if others wait, and goes to the back
of the line. Where several nodes share the work (`Shifts`), the board has the wikis of this one; what is asked for
another node's wiki goes to that.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Thread

from wikiholt.errors import Busy, WikiholtError
from wikiholt.keeper.alone import Alone
from wikiholt.keeper.backups import Rounds
from wikiholt.keeper.board import Board
from wikiholt.keeper.checks import Checks
from wikiholt.keeper.desk import read_activity
from wikiholt.keeper.elsewhere import Elsewhere
from wikiholt.keeper.entries import Activity, Counters, Entry, Finding, Pace, Standing
from wikiholt.keeper.jobs import Job, JobState, read_job, write_job
from wikiholt.keeper.line import Rank
from wikiholt.keeper.roots import Roots
from wikiholt.keeper.standings import shared
from wikiholt.keeper.turns import Turns
from wikiholt.ports import Call, Shifts
from wikiholt.service import Service

_LOG = logging.getLogger(__name__)

_FETCHERS = 2


def _nothing() -> Iterable[Finding]:
    return ()


class Keeper:
    """Looks after all wikis of a service, and after repositories that `find` finds."""

    def __init__(
        self,
        service: Service,
        pace: Pace | None = None,
        find: Callable[[], Iterable[Finding]] = _nothing,
        only: str | None = None,
        shifts: Shifts | None = None,
    ):
        """`only` is the id of the one wiki to look after, where it is not all of them, or those that `shifts` gives."""
        self._service = service
        self._pace = pace or Pace()
        self._me = secrets.token_hex(8)
        self._board = Board()
        self._shifts: Shifts = shifts or Alone()
        self._elsewhere = Elsewhere(service, self._shifts, self._rest)
        self._stirred = False
        self._answers: Mapping[Call, Callable[[str], None]] = {
            Call.WAKE: self.wake,
            Call.MEND: self.mend,
            Call.ASKED: self.asked,
            Call.REINDEX: self._take_up,
        }
        self._turns = Turns(service, self._board, self._pace, self._me, many=shifts is not None)
        self._roots = Roots(service, self._board, self._pace, find, only, self._shifts.mine)
        self._backups = Rounds(service, self._board, self._pace.backups, self._rest)
        self._checks = Checks(service, self._board, self._pace.checks, self._rest)
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Begin, in the background; returns at once whatever the number of wikis."""
        work = [("look", self._look), ("discover", self._discover), ("urgent", self._sync_urgent)]
        work += [(f"sync-{number}", self._sync) for number in range(self._pace.workers)]
        work += [(f"fetch-{number}", self._fetch) for number in range(_FETCHERS)]
        work += [("backups", self._backups.run)] if self._pace.backups else []
        work += [("checks", self._checks.run)] if self._pace.checks else []
        self._threads = [Thread(target=target, name=f"keeper-{name}", daemon=True) for name, target in work]
        for thread in self._threads:
            thread.start()
        self._shifts.begin(self._called)

    def stop(self, timeout: float = 30.0) -> bool:
        """Take on nothing new, let running syncs finish the batch in hand; False if one did not within the time."""
        self._board.stop()
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        ended = not any(thread.is_alive() for thread in self._threads)
        if ended or timeout:
            self._shifts.close()
        return ended

    def wake(self, wiki_id: str) -> None:
        """Its repository may have changed: it goes before those that are only due, and failures are forgotten."""
        self._board.count["wakes"] += 1
        if not self._owns(wiki_id):
            self._elsewhere.call(wiki_id, Call.WAKE)
            return
        entry = self._entry(wiki_id)
        with self._board.changed:
            entry.forgiven()
        self._want(entry, Rank.WOKEN)

    def mend(self, wiki_id: str) -> None:
        """Its index proved broken: a sync mends it, before those that are only due. Never raises."""
        if not self._owns(wiki_id):
            self._elsewhere.call(wiki_id, Call.MEND)
            return
        try:
            entry = self._entry(wiki_id)
        except WikiholtError:
            return
        with self._board.changed:
            entry.well, entry.revision = False, None
            entry.forgiven()
        self._board.put(entry, Rank.WOKEN)

    def asked(self, wiki_id: str) -> None:
        """Somebody uses it: if it was never looked at, it comes first. Cheap enough for every request; never raises."""
        entry = self._board.get(wiki_id)
        if entry is None and not self._owns(wiki_id):
            self._elsewhere.asked(wiki_id)
            return
        if entry is None:
            try:
                entry = self._entry(wiki_id)
            except WikiholtError:
                return
        if entry.revision is None and not (
            entry.running or entry.begun or entry.failures or entry.missing or entry.activity
        ):
            self._want(entry, Rank.ASKED)

    def fresh(self, wiki_id: str, timeout: float) -> bool:
        """Wait until the index stands for the HEAD of now; False when it does not within the time, or cannot."""
        if not self._owns(wiki_id):
            return self._elsewhere.fresh(wiki_id, timeout)
        entry, began = self._entry(wiki_id), time.monotonic()
        while True:
            turns, fetched = entry.turns, not entry.remote or entry.fetched_at >= began
            if fetched:
                try:
                    head = self._service.source(entry.wiki).head()
                except WikiholtError:
                    return False
                if self._turns.settled(entry, head):
                    return True
                if entry.failures and entry.failed_head in (None, head):
                    return False
            elif entry.failures and entry.failed_head is None:
                return False
            if not self._turn_after(entry, turns, began + timeout, fetched) or self._board.get(wiki_id) is None:
                return False

    def _turn_after(self, entry: Entry, turns: int, until: float, fetched: bool) -> bool:
        """Have a turn come first, and wait until it has ended; `turns` is how many had before it was found wanting."""
        with self._board.changed:
            if entry.turns == turns:
                self._want(entry, Rank.ASKED, fetched)
            left = max(0.0, until - time.monotonic())
            self._board.changed.wait_for(lambda: entry.turns != turns or self._board.stopping, left)
            return entry.turns != turns

    def reindex(self, wiki_id: str) -> Job:
        """Build the wiki's index anew beside the old one; raises Busy while that is being done."""
        self._service.registry.by_id(wiki_id)
        store = self._service.workshop.store
        with self._board.changed:
            if read_job(store, wiki_id).open:
                raise Busy("this wiki is being reindexed", hint="wait for it to finish; its status says how far it is")
            job = Job(JobState.QUEUED, secrets.token_hex(8), datetime.now(UTC), keeper=self._me)
            write_job(store, wiki_id, job, make=True)
        if self._owns(wiki_id):
            self._take_up(wiki_id)
        else:
            self._elsewhere.call(wiki_id, Call.REINDEX)
        return job

    def _take_up(self, wiki_id: str) -> None:
        """A reindexing was asked for, by whichever node."""
        entry = self._entry(wiki_id)
        with self._board.changed:
            entry.job = True
            entry.forgiven()
        self._board.put(entry, Rank.WOKEN)

    def job(self, wiki_id: str) -> Job:
        """The wiki's last reindexing, by whichever process."""
        return read_job(self._service.workshop.store, wiki_id)

    def activity(self, wiki_id: str) -> Activity | None:
        """What is being done for the wiki just now, by whichever process."""
        entry = self._board.get(wiki_id)
        if entry is not None and entry.activity is not None:
            return entry.activity
        return read_activity(self._service.workshop.store, wiki_id)

    def standing(self, wiki_id: str) -> Standing:
        """How the keeper sees the wiki; raises WikiNotFound."""
        if not self._owns(wiki_id):
            return shared(self._service.workshop.store, wiki_id)
        return self._board.standing(self._entry(wiki_id))

    def counters(self) -> Counters:
        return self._board.counters()

    @property
    def skipped(self) -> Sequence[Finding]:
        """Repositories that were found and could not be taken up, with the reason. For the operator only."""
        return self._roots.skipped

    def _owns(self, wiki_id: str) -> bool:
        mine = self._shifts.mine()
        return mine is None or wiki_id in mine

    def _called(self, wiki_id: str, why: Call) -> None:
        """Another node asks for a wiki of this one, or which wikis those are has changed. Never raises."""
        try:
            if why is Call.SHIFTS:
                with self._board.changed:
                    self._stirred = True
                    self._board.changed.notify_all()
            elif self._owns(wiki_id):  # if not, that node has heard it too, or will find it
                self._answers[why](wiki_id)
        except WikiholtError as error:
            _LOG.warning("what another node asked for could not be done: %s", error.message)
        except Exception:  # noqa: BLE001 - a fault met in one call must not end the thread that hears them all
            _LOG.exception("a fault of Wikiholt's own")

    def _entry(self, wiki_id: str) -> Entry:
        """What is known of the wiki; one that was registered a moment ago is taken up. Raises WikiNotFound."""
        entry = self._board.get(wiki_id)
        if entry is None:
            wiki = self._service.registry.by_id(wiki_id)
            entry = self._board.adopt(wiki, self._pace.interval_of(wiki))
        return entry

    def _want(self, entry: Entry, rank: Rank, fetched: bool = False) -> None:
        if entry.remote and not fetched:
            entry.urgent = True
            self._board.put_fetch(entry, rank)
        else:
            self._board.put(entry, rank)

    def _look(self) -> None:
        for entry in self._board.due():
            first, began = not entry.looked, time.thread_time()
            self._turns.look(entry)
            if first:
                # The first look opens the index: after a start, searches go before all of these.
                self._rest(2 * (time.thread_time() - began))

    def _discover(self) -> None:
        while not self._board.stopping:
            began, self._stirred = time.thread_time(), False
            self._roots.look()
            # However many wikis there are, looking for them takes a fortieth of a core at most; a tenth, while other
            # nodes come and go or wikis are registered by the hundred.
            took = time.thread_time() - began
            self._rest(10 * took)
            with self._board.changed:
                rest = max(self._pace.discover, 40 * took)
                self._board.changed.wait_for(lambda: self._board.stopping or self._stirred, rest)

    def _rest(self, seconds: float) -> None:
        with self._board.changed:
            self._board.changed.wait_for(lambda: self._board.stopping, seconds)

    def _sync(self) -> None:
        for entry in self._board.turns():
            self._turns.turn(entry)

    def _sync_urgent(self) -> None:
        for entry in self._board.turns(urgent_only=True):
            self._turns.turn(entry)

    def _fetch(self) -> None:
        for entry in self._board.fetches():
            self._turns.fetch(entry)
