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

from wikiholt.domain.storage_protocols import NodeAssignments, NodeMessage
from wikiholt.errors import Busy, WikiholtError
from wikiholt.scheduler.activity import read_activity
from wikiholt.scheduler.nodes import OtherNodes, SingleNode, read_state
from wikiholt.scheduler.periodic import ScheduledBackups, ScheduledChecks
from wikiholt.scheduler.reindex_job import ReindexJob, ReindexState, read_job, write_job
from wikiholt.scheduler.scheduler_state import SchedulerState
from wikiholt.scheduler.tasks import WikiTasks
from wikiholt.scheduler.wiki_discovery import WikiDiscovery
from wikiholt.scheduler.wiki_queue import SyncPriority
from wikiholt.scheduler.wiki_records import (
    DiscoveredRepository,
    SchedulerConfig,
    SchedulerCounters,
    SyncState,
    WikiActivity,
    WikiEntry,
)
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)

_FETCH_THREADS = 2


def _find_nothing() -> Iterable[DiscoveredRepository]:
    return ()


class Scheduler:
    """Looks after all wikis of a service, and after repositories that `find` finds."""

    def __init__(
        self,
        service: WikiService,
        config: SchedulerConfig | None = None,
        find_repositories: Callable[[], Iterable[DiscoveredRepository]] = _find_nothing,
        only_wiki_id: str | None = None,
        assignments: NodeAssignments | None = None,
    ):
        """`only` is the id of the one wiki to look after, where it is not all of them, or those that `shifts` gives."""
        self._service = service
        self._config = config or SchedulerConfig()
        self._scheduler_id = secrets.token_hex(8)
        self._state = SchedulerState()
        self._assignments: NodeAssignments = assignments or SingleNode()
        self._other_nodes = OtherNodes(service, self._assignments, self._sleep)
        self._assignments_changed = False
        self._message_handlers: Mapping[NodeMessage, Callable[[str], None]] = {
            NodeMessage.CHANGED: self.notify_changed,
            NodeMessage.REPAIR: self.request_repair,
            NodeMessage.TOUCH: self.touch,
            NodeMessage.REINDEX: self._enqueue_reindex,
        }
        self._tasks = WikiTasks(
            service, self._state, self._config, self._scheduler_id, multi_node=assignments is not None
        )
        self._discovery = WikiDiscovery(
            service, self._state, self._config, find_repositories, only_wiki_id, self._assignments.get_assigned
        )
        self._backups = ScheduledBackups(service, self._state, self._config.backup_interval_s, self._sleep)
        self._checks = ScheduledChecks(service, self._state, self._config.check_interval_s, self._sleep)
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Begin, in the background; returns at once whatever the number of wikis."""
        work = [("look", self._run_head_checks), ("discover", self._run_discovery), ("urgent", self._run_urgent_syncs)]
        work += [(f"sync-{number}", self._run_syncs) for number in range(self._config.workers)]
        work += [(f"fetch-{number}", self._run_fetches) for number in range(_FETCH_THREADS)]
        work += [("backups", self._backups.run)] if self._config.backup_interval_s else []
        work += [("checks", self._checks.run)] if self._config.check_interval_s else []
        self._threads = [Thread(target=target, name=f"keeper-{name}", daemon=True) for name, target in work]
        for thread in self._threads:
            thread.start()
        self._assignments.start(self._on_node_message)

    def stop(self, timeout: float = 30.0) -> bool:
        """Take on nothing new, let running syncs finish the batch in hand; False if one did not within the time."""
        self._state.stop()
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        ended = not any(thread.is_alive() for thread in self._threads)
        if ended or timeout:
            self._assignments.close()
        return ended

    def notify_changed(self, wiki_id: str) -> None:
        """Its repository may have changed: it goes before those that are only due, and failures are forgotten."""
        self._state.counts["wakes"] += 1
        if not self._is_assigned(wiki_id):
            self._other_nodes.send(wiki_id, NodeMessage.CHANGED)
            return
        entry = self._get_entry(wiki_id)
        with self._state.changed:
            entry.clear_failures()
        self._request_sync(entry, SyncPriority.NOTIFIED)

    def request_repair(self, wiki_id: str) -> None:
        """Its index proved broken: a sync mends it, before those that are only due. Never raises."""
        if not self._is_assigned(wiki_id):
            self._other_nodes.send(wiki_id, NodeMessage.REPAIR)
            return
        try:
            entry = self._get_entry(wiki_id)
        except WikiholtError:
            return
        with self._state.changed:
            entry.index_ok, entry.revision = False, None
            entry.clear_failures()
        self._state.enqueue(entry, SyncPriority.NOTIFIED)

    def touch(self, wiki_id: str) -> None:
        """Somebody uses it: if it was never looked at, it comes first. Cheap enough for every request; never raises."""
        entry = self._state.get(wiki_id)
        if entry is None and not self._is_assigned(wiki_id):
            self._other_nodes.touch(wiki_id)
            return
        if entry is None:
            try:
                entry = self._get_entry(wiki_id)
            except WikiholtError:
                return
        if entry.revision is None and not (
            entry.running or entry.in_progress or entry.failures or entry.missing or entry.activity
        ):
            self._request_sync(entry, SyncPriority.INTERACTIVE)

    def wait_until_fresh(self, wiki_id: str, timeout: float) -> bool:
        """Wait until the index stands for the HEAD of now; False when it does not within the time, or cannot."""
        if not self._is_assigned(wiki_id):
            return self._other_nodes.wait_until_fresh(wiki_id, timeout)
        entry, began = self._get_entry(wiki_id), time.monotonic()
        while True:
            turns, fetched = entry.finished_runs, not entry.is_remote or entry.fetched_at >= began
            if fetched:
                try:
                    head = self._service.get_source(entry.wiki).get_head()
                except WikiholtError:
                    return False
                if self._tasks.is_up_to_date(entry, head):
                    return True
                if entry.failures and entry.failed_head in (None, head):
                    return False
            elif entry.failures and entry.failed_head is None:
                return False
            if not self._wait_for_run(entry, turns, began + timeout, fetched) or self._state.get(wiki_id) is None:
                return False

    def _wait_for_run(self, entry: WikiEntry, finished_runs: int, deadline: float, fetched: bool) -> bool:
        """Have a turn come first, and wait until it has ended; `turns` is how many had before it was found wanting."""
        with self._state.changed:
            if entry.finished_runs == finished_runs:
                self._request_sync(entry, SyncPriority.INTERACTIVE, fetched)
            left = max(0.0, deadline - time.monotonic())
            self._state.changed.wait_for(lambda: entry.finished_runs != finished_runs or self._state.stopping, left)
            return entry.finished_runs != finished_runs

    def reindex(self, wiki_id: str) -> ReindexJob:
        """Build the wiki's index anew beside the old one; raises Busy while that is being done."""
        self._service.registry.get_by_id(wiki_id)
        store = self._service.components.store
        with self._state.changed:
            if read_job(store, wiki_id).is_open:
                raise Busy("this wiki is being reindexed", hint="wait for it to finish; its status says how far it is")
            job = ReindexJob(ReindexState.QUEUED, secrets.token_hex(8), datetime.now(UTC), keeper=self._scheduler_id)
            write_job(store, wiki_id, job, create=True)
        if self._is_assigned(wiki_id):
            self._enqueue_reindex(wiki_id)
        else:
            self._other_nodes.send(wiki_id, NodeMessage.REINDEX)
        return job

    def _enqueue_reindex(self, wiki_id: str) -> None:
        """A reindexing was asked for, by whichever node."""
        entry = self._get_entry(wiki_id)
        with self._state.changed:
            entry.reindexing = True
            entry.clear_failures()
        self._state.enqueue(entry, SyncPriority.NOTIFIED)

    def get_reindex_job(self, wiki_id: str) -> ReindexJob:
        """The wiki's last reindexing, by whichever process."""
        return read_job(self._service.components.store, wiki_id)

    def get_activity(self, wiki_id: str) -> WikiActivity | None:
        """What is being done for the wiki just now, by whichever process."""
        entry = self._state.get(wiki_id)
        if entry is not None and entry.activity is not None:
            return entry.activity
        return read_activity(self._service.components.store, wiki_id)

    def get_sync_state(self, wiki_id: str) -> SyncState:
        """How the keeper sees the wiki; raises WikiNotFound."""
        if not self._is_assigned(wiki_id):
            return read_state(self._service.components.store, wiki_id)
        return self._state.get_sync_state(self._get_entry(wiki_id))

    def get_counters(self) -> SchedulerCounters:
        return self._state.get_counters()

    @property
    def skipped(self) -> Sequence[DiscoveredRepository]:
        """Repositories that were found and could not be taken up, with the reason. For the operator only."""
        return self._discovery.skipped

    def _is_assigned(self, wiki_id: str) -> bool:
        mine = self._assignments.get_assigned()
        return mine is None or wiki_id in mine

    def _on_node_message(self, wiki_id: str, message: NodeMessage) -> None:
        """Another node asks for a wiki of this one, or which wikis those are has changed. Never raises."""
        try:
            if message is NodeMessage.ASSIGNMENTS:
                with self._state.changed:
                    self._assignments_changed = True
                    self._state.changed.notify_all()
            elif self._is_assigned(wiki_id):  # if not, that node has heard it too, or will find it
                self._message_handlers[message](wiki_id)
        except WikiholtError as error:
            _LOG.warning("what another node asked for could not be done: %s", error.message)
        except Exception:  # noqa: BLE001 - a fault met in one call must not end the thread that hears them all
            _LOG.exception("a fault of Wikiholt's own")

    def _get_entry(self, wiki_id: str) -> WikiEntry:
        """What is known of the wiki; one that was registered a moment ago is taken up. Raises WikiNotFound."""
        entry = self._state.get(wiki_id)
        if entry is None:
            wiki = self._service.registry.get_by_id(wiki_id)
            entry = self._state.add(wiki, self._config.get_interval(wiki))
        return entry

    def _request_sync(self, entry: WikiEntry, priority: SyncPriority, fetched: bool = False) -> None:
        if entry.is_remote and not fetched:
            entry.fetch_urgent = True
            self._state.enqueue_fetch(entry, priority)
        else:
            self._state.enqueue(entry, priority)

    def _run_head_checks(self) -> None:
        for entry in self._state.iter_due():
            first, began = not entry.checked, time.thread_time()
            self._tasks.check_head(entry)
            if first:
                # The first look opens the index: after a start, searches go before all of these.
                self._sleep(2 * (time.thread_time() - began))

    def _run_discovery(self) -> None:
        while not self._state.stopping:
            began, self._assignments_changed = time.thread_time(), False
            self._discovery.scan()
            # However many wikis there are, looking for them takes a fortieth of a core at most; a tenth, while other
            # nodes come and go or wikis are registered by the hundred.
            took = time.thread_time() - began
            self._sleep(10 * took)
            with self._state.changed:
                rest = max(self._config.discovery_interval_s, 40 * took)
                self._state.changed.wait_for(lambda: self._state.stopping or self._assignments_changed, rest)

    def _sleep(self, seconds: float) -> None:
        with self._state.changed:
            self._state.changed.wait_for(lambda: self._state.stopping, seconds)

    def _run_syncs(self) -> None:
        for entry in self._state.iter_syncs():
            self._tasks.run_sync(entry)

    def _run_urgent_syncs(self) -> None:
        for entry in self._state.iter_syncs(urgent_only=True):
            self._tasks.run_sync(entry)

    def _run_fetches(self) -> None:
        for entry in self._state.iter_fetches():
            self._tasks.fetch(entry)
