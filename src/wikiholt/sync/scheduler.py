"""The scheduler: keeps every wiki's index at HEAD while a service runs. Safe to use from many threads.

Threads: one checks HEAD of wikis that are due, one discovers wikis, `SchedulerConfig.workers` sync, one more syncs only
urgent wikis, two fetch from remotes, one runs backups, one runs checks. They share the `SchedulerState`. A wiki has one
run at a time, and only one wiki that may hang has one. After `SchedulerConfig.slice_s` seconds a run pauses if others
wait, and the wiki goes to the back of the queue. With several nodes, the state contains the wikis assigned to this one;
requests for others are sent to their node.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from threading import Thread

from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.protocols import SourceWatcher
from wikiholt.domain.storage_protocols import NodeAssignments, NodeMessage
from wikiholt.errors import Busy, WikiholtError
from wikiholt.free_memory import MemoryReleaser
from wikiholt.sync.nodes import OtherNodes, SingleNode, publish_state, read_state
from wikiholt.sync.periodic import ScheduledBackups, ScheduledChecks
from wikiholt.sync.reindex_job import ReindexJob, ReindexState, read_activity, read_job, write_job
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.tasks import WikiTasks
from wikiholt.sync.wiki_discovery import WikiDiscovery
from wikiholt.sync.wiki_records import (
    SchedulerConfig,
    SchedulerCounters,
    SchedulerProgress,
    SyncPriority,
    SyncState,
    WikiActivity,
    WikiEntry,
)
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)

_FETCH_THREADS = 2
_RELEASE_INTERVAL_S = 600.0
"""The next save or search needs some milliseconds to get released memory again, so it is kept for a while."""
_LONG_SYNC_S = 5.0
"""Such a sync frees more than the next tasks need."""


class Scheduler:
    """Syncs all wikis of a service, and registers the repositories that `find_repositories` returns."""

    def __init__(
        self,
        service: WikiService,
        config: SchedulerConfig | None = None,
        find_repositories: Callable[[], Iterable[DiscoveredRepository]] = lambda: (),
        only_wiki_id: str | None = None,
        assignments: NodeAssignments | None = None,
        watcher: SourceWatcher | None = None,
        *,
        publishes_state: bool = False,
        on_demand: bool = False,
    ) -> None:
        """`only_wiki_id` limits the scheduler to one wiki, `assignments` to those of this node, and `on_demand` to
        those that are in use.

        With `publishes_state` or `assignments`, other processes can read the sync state of each wiki.
        """
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
        publish = partial(publish_state, is_watching=self._is_watching)
        self._tasks = WikiTasks(
            service,
            self._state,
            self._config,
            self._scheduler_id,
            multi_node=assignments is not None,
            publish=publish if publishes_state or assignments is not None else None,
        )
        self._discovery = WikiDiscovery(
            service, self._state, self._config, find_repositories, only_wiki_id, self._assignments.get_assigned, watcher
        )
        self._watcher = watcher
        self._on_demand = on_demand
        self._backups = ScheduledBackups(service, self._state, self._config.backup_interval_s, self._sleep)
        self._checks = ScheduledChecks(service, self._state, self._config.check_interval_s, self._sleep)
        self._memory = MemoryReleaser(service.components.release_memory)
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the threads. Returns immediately."""
        targets: list[tuple[str, Callable[[], None]]] = [
            ("head", self._run_head_checks),
            ("urgent", partial(self._run_syncs, urgent_only=True)),
        ]
        targets += [] if self._on_demand else [("discover", self._run_discovery)]
        targets += [(f"sync-{number}", self._run_syncs) for number in range(self._config.workers)]
        targets += [(f"fetch-{number}", self._run_fetches) for number in range(_FETCH_THREADS)]
        targets += [("backups", self._backups.run)] if self._config.backup_interval_s else []
        targets += [("checks", self._checks.run)] if self._config.check_interval_s else []
        self._threads = [Thread(target=run, name=f"scheduler-{name}", daemon=True) for name, run in targets]
        for thread in self._threads:
            thread.start()
        self._assignments.start(self._on_node_message)
        if self._watcher is not None:
            self._watcher.start(lambda wiki_id: self._on_node_message(wiki_id, NodeMessage.CHANGED))

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Start nothing new and let running syncs finish their current batch. False on timeout."""
        self._state.stop()
        if self._watcher is not None:
            self._watcher.close()
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        stopped = not any(thread.is_alive() for thread in self._threads)
        if stopped or timeout_s:
            self._assignments.close()
        return stopped

    def notify_changed(self, wiki_id: str) -> None:
        """The repository may have changed: sync it before scheduled wikis, and retry after failures."""
        self._state.counts["notifications"] += 1
        if not self._is_assigned(wiki_id):
            self._other_nodes.send(wiki_id, NodeMessage.CHANGED)
            return
        entry = self._get_entry(wiki_id)
        with self._state.changed:
            entry.clear_failures()
        self._request_sync(entry, SyncPriority.NOTIFIED)

    def request_repair(self, wiki_id: str) -> None:
        """The index is damaged: a sync repairs it, before scheduled wikis. Never raises."""
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
        """The wiki is in use: sync it first if it was never checked. Cheap enough for every request; never raises."""
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
            entry.running or entry.in_progress or entry.error or entry.missing or entry.activity
        ):
            self._request_sync(entry, SyncPriority.INTERACTIVE)

    def wait_until_fresh(self, wiki_id: str, timeout_s: float) -> bool:
        """Wait until the index is at the current HEAD. False on timeout or failure."""
        if not self._is_assigned(wiki_id):
            return self._other_nodes.wait_until_fresh(wiki_id, timeout_s)
        entry, began, tried = self._get_entry(wiki_id), time.monotonic(), False
        while True:
            runs, fetched = entry.finished_runs, not entry.has_mirror or entry.fetched_at >= began
            if fetched:
                try:
                    head = self._service.get_source(entry.wiki).get_head()
                except WikiholtError:
                    return False
                if self._tasks.is_up_to_date(entry, head) or self._tasks.has_words(entry, head):
                    return True
                if entry.failures and entry.failed_head in (None, head):
                    return False
            elif (entry.failures and entry.failed_head is None) or (entry.missing and tried):
                return False
            if not self._wait_for_run(entry, runs, began + timeout_s, fetched) or self._state.get(wiki_id) is None:
                return False
            tried = True

    def _wait_for_run(self, entry: WikiEntry, finished_runs: int, deadline: float, fetched: bool) -> bool:
        """Request a run with high priority and wait until one more than `finished_runs` has finished."""
        with self._state.changed:
            if entry.finished_runs == finished_runs:
                self._request_sync(entry, SyncPriority.INTERACTIVE, fetched)
            remaining = max(0.0, deadline - time.monotonic())
            self._state.changed.wait_for(
                lambda: entry.finished_runs != finished_runs or self._state.stopping, remaining
            )
            return entry.finished_runs != finished_runs

    def reindex(self, wiki_id: str) -> ReindexJob:
        """Start a reindex job, which builds a new index beside the published one. Raises Busy if one is running."""
        self._service.registry.get_by_id(wiki_id)
        store = self._service.components.store
        with self._state.changed:
            if read_job(store, wiki_id).is_open:
                raise Busy("this wiki is being reindexed", hint="wait for it to finish; see its progress in its status")
            job = ReindexJob(
                ReindexState.QUEUED, secrets.token_hex(8), datetime.now(UTC), scheduler_id=self._scheduler_id
            )
            write_job(store, wiki_id, job, create=True)
        if self._is_assigned(wiki_id):
            self._enqueue_reindex(wiki_id)
        else:
            self._other_nodes.send(wiki_id, NodeMessage.REINDEX)
        return job

    def _enqueue_reindex(self, wiki_id: str) -> None:
        """Enqueue a reindex job that any node created."""
        entry = self._get_entry(wiki_id)
        with self._state.changed:
            entry.reindexing = True
            entry.clear_failures()
        self._state.enqueue(entry, SyncPriority.NOTIFIED)

    def get_reindex_job(self, wiki_id: str) -> ReindexJob:
        """The wiki's last reindex job, by any process."""
        return read_job(self._service.components.store, wiki_id)

    def get_activity(self, wiki_id: str) -> WikiActivity | None:
        """The current activity for the wiki, by any process."""
        entry = self._state.get(wiki_id)
        if entry is not None and entry.activity is not None:
            return entry.activity
        return read_activity(self._service.components.store, wiki_id)

    def get_sync_state(self, wiki_id: str) -> SyncState:
        """The scheduler's state of the wiki. Raises WikiNotFound."""
        if not self._is_assigned(wiki_id):
            return read_state(self._service.components.store, wiki_id)
        return replace(self._state.get_sync_state(self._get_entry(wiki_id)), watched=self._is_watching(wiki_id))

    def _is_watching(self, wiki_id: str) -> bool:
        return self._watcher is not None and self._watcher.is_watching(wiki_id)

    def get_counters(self) -> SchedulerCounters:
        return self._state.get_counters()

    def get_progress(self) -> SchedulerProgress:
        """How far the wikis of this node are. Cheap enough to be called every second."""
        return self._state.get_progress()

    @property
    def skipped(self) -> Sequence[DiscoveredRepository]:
        """Discovered repositories that could not be registered, with the reason. For the operator only."""
        return self._discovery.skipped

    def _is_assigned(self, wiki_id: str) -> bool:
        assigned = self._assignments.get_assigned()
        return assigned is None or wiki_id in assigned

    def _on_node_message(self, wiki_id: str, message: NodeMessage) -> None:
        """Handle a message from another node, or a change of the assignments. Never raises."""
        if message is NodeMessage.ASSIGNMENTS:
            with self._state.changed:
                self._assignments_changed = True
                self._state.changed.notify_all()
        elif self._is_assigned(wiki_id):  # otherwise the assigned node also gets the message, or polls
            self.handle_request(wiki_id, message)

    def handle_request(self, wiki_id: str, message: NodeMessage) -> None:
        """Handle a message about any wiki from a worker process or another node. Never raises."""
        try:
            if message is NodeMessage.REINDEX and not self._is_assigned(wiki_id):
                self._other_nodes.send(wiki_id, message)
            else:
                self._message_handlers[message](wiki_id)
        except WikiholtError as error:
            _LOG.warning("a request of another process failed: %s", error.message)
        except Exception:  # noqa: BLE001 - the thread handles all messages and must not end
            _LOG.exception("internal error")

    def _get_entry(self, wiki_id: str) -> WikiEntry:
        """The entry of the wiki, which is added if the wiki is new. Raises WikiNotFound."""
        entry = self._state.get(wiki_id)
        if entry is None:
            wiki = self._service.registry.get_by_id(wiki_id)
            entry = self._state.add(wiki, self._config.get_interval(wiki))
        return entry

    def _request_sync(self, entry: WikiEntry, priority: SyncPriority, fetched: bool = False) -> None:
        if entry.has_mirror and not fetched:
            entry.fetch_urgent = True
            self._state.enqueue_fetch(entry, priority)
        else:
            self._state.enqueue(entry, priority)

    def _run_head_checks(self) -> None:
        for entry in self._state.iter_due():
            first, began = not entry.checked, time.thread_time()
            self._tasks.check_head(entry)
            self._memory.release(_RELEASE_INTERVAL_S)  # what searches and saves have freed
            if first:
                # The first check opens the index. Leave CPU time for searches after a start.
                self._sleep(2 * (time.thread_time() - began))

    def _run_discovery(self) -> None:
        while not self._state.stopping:
            began, self._assignments_changed = time.thread_time(), False
            self._discovery.scan()
            # Limit discovery to a fortieth of a core; to a tenth while nodes come and go or many wikis are registered.
            took = time.thread_time() - began
            self._sleep(10 * took)
            with self._state.changed:
                delay = max(self._config.discovery_interval_s, 40 * took)
                self._state.changed.wait_for(lambda: self._state.stopping or self._assignments_changed, delay)

    def _sleep(self, seconds: float) -> None:
        with self._state.changed:
            self._state.changed.wait_for(lambda: self._state.stopping, seconds)

    def _run_syncs(self, *, urgent_only: bool = False) -> None:
        for entry in self._state.iter_syncs(urgent_only=urgent_only):
            began = time.monotonic()
            self._tasks.run_sync(entry)
            is_long = time.monotonic() - began > _LONG_SYNC_S
            self._memory.release(0.0 if is_long else _RELEASE_INTERVAL_S)

    def _run_fetches(self) -> None:
        for entry in self._state.iter_fetches():
            self._tasks.fetch(entry)
