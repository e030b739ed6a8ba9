"""The work for one wiki: check HEAD, sync, fetch. No task raises, so that one wiki does not affect the others."""

import logging
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from wikiholt.errors import (
    Busy,
    DatabaseUnavailable,
    LockTimeout,
    NoCommits,
    NoPagesYet,
    SourceMissing,
    WikiholtError,
    WikiNotFound,
)
from wikiholt.index.batch import Pause, PauseCheck, SyncPaused
from wikiholt.index.reconciler import SyncProgress
from wikiholt.sync.reindex_job import ActivityReporter, ReindexRunner, lock_activity, read_job
from wikiholt.sync.scheduler_state import SchedulerState
from wikiholt.sync.wiki_records import SchedulerConfig, SyncPriority, WikiActivity, WikiEntry, jitter
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

_LOG = logging.getLogger(__name__)

_BUSY_RETRY_S = 1.0
"""Delay before a wiki is tried again whose index another process was writing."""
_MAX_LOCK_DELAY_S = 60.0
"""Maximum delay before a wiki is tried again whose index is locked in the database."""
_MAX_LOCK_TIMEOUTS = 10
_TOKEN_TTL_S = 600.0
"""How long to trust the cached change token of an assigned wiki; reading it again costs a database login."""
_MAX_EARLY_CHECK_S = 1.0
"""How much earlier a wiki may be checked, to be checked together with others."""
_PROBE_TTL_S = 600.0
"""How long a probe may replace the complete check of a repository at rest."""
_LONG_FAILURE_S = 5.0
"""A run that takes longer until it fails may have waited for a disk or a server."""
_MAX_PREEMPT_DELAY_S = 1.0
"""Maximum time a sync continues while an urgent wiki waits."""


class WikiTasks:
    """Tasks of a scheduler. Each call names its wiki by the entry."""

    def __init__(
        self,
        service: WikiService,
        state: SchedulerState,
        config: SchedulerConfig,
        scheduler_id: str,
        *,
        multi_node: bool = False,
        publish: Callable[[WikiService, WikiEntry], None] | None = None,
    ) -> None:
        """`publish` stores the state of a wiki for other processes and nodes."""
        self._service = service
        self._state = state
        self._config = config
        self._scheduler_id = scheduler_id
        self._multi_node = multi_node
        self._publish = publish

    def check_head(self, entry: WikiEntry) -> None:
        """Compare HEAD with the indexed revision, without opening the index, and enqueue the wiki if they differ."""
        now = time.monotonic()
        first = not entry.checked
        due_at = now + entry.interval_s * (jitter(0.5, 1.0) if first else 1.0)
        # Wikis that are due at nearly the same time share one wake-up, which costs more than a check.
        self._state.schedule(entry, due_at - due_at % min(_MAX_EARLY_CHECK_S, entry.interval_s / 60))
        if entry.running or self._state.is_queued(entry):
            return
        if entry.retry_priority is not None:
            priority, entry.retry_priority = entry.retry_priority, None
            self._state.enqueue(entry, priority)
        elif entry.failures and now < entry.retry_at and entry.failed_head is None:
            return  # checking again would run git
        elif entry.has_mirror:
            self._state.enqueue_fetch(entry, SyncPriority.SCHEDULED)
        elif entry.failures and now >= entry.retry_at:
            self._state.enqueue(entry, SyncPriority.SCHEDULED)
        else:
            self._record_errors(entry, _RunResult(), lambda: self._compare_head(entry))

    def _compare_head(self, entry: WikiEntry) -> None:
        self._state.counts["head_checks"] += 1
        head = self._read_head(entry)
        entry.mark_readable()
        if entry.failures:
            changed = head != entry.failed_head
        else:
            entry.reindexing = entry.reindexing or (not entry.checked and self._has_reindex_job(entry))
            if not entry.checked and self._service.components.store.get_published(entry.wiki.id) is not None:
                self._refresh_entry(entry, self._service.get_background_handle(entry.wiki.slug))
            changed = not self.is_up_to_date(entry, head, trust_token=self._multi_node)
        if changed or entry.reindexing:
            self._state.enqueue(entry, SyncPriority.SCHEDULED)

    def _read_head(self, entry: WikiEntry) -> str:
        """HEAD of a local repository. While nothing changes, a probe reads it between two complete checks."""
        wiki, probe = entry.wiki, entry.head_probe
        is_trusted = entry.probed_wiki is wiki and time.monotonic() < entry.probe_until
        head = probe.read_head() if probe is not None and is_trusted else None
        if head is None:
            entry.head_probe, source = None, self._service.get_source(wiki)
            if not entry.checked:
                # Complete a write that a killed process left unfinished.
                source.fetch()
            head, entry.head_probe = source.get_head_and_probe()
            entry.probed_wiki, entry.probe_until = wiki, time.monotonic() + jitter(0.5, 1.0) * _PROBE_TTL_S
        return head

    def run_sync(self, entry: WikiEntry) -> None:
        """Bring the index to HEAD, then continue a reindex job, pausing for other wikis."""
        result, began = _RunResult(), time.monotonic()
        self._record_errors(entry, result, lambda: self._sync_and_reindex(entry, result))
        if not result.paused:
            entry.may_hang = entry.failures > 0 and time.monotonic() - began > _LONG_FAILURE_S
        if result.paused:
            entry.in_progress = True
            self._state.counts["pauses"] += 1
        self._state.finish(entry, lambda requested: self._get_next_priority(entry, result, requested))

    def _get_next_priority(
        self, entry: WikiEntry, result: "_RunResult", requested: SyncPriority | None
    ) -> SyncPriority | None:
        """The priority of the wiki's next run, or None. `requested` is a priority requested during this run."""
        if result.busy:
            # Another process is writing the index: not a failure, and it may do all the work.
            entry.retry_priority = SyncPriority.SCHEDULED if requested is None else requested
            delay = min(_BUSY_RETRY_S * 2**entry.lock_timeouts, _MAX_LOCK_DELAY_S)
            self._state.schedule(entry, time.monotonic() + delay)
            return None
        if result.paused and not (result.reindexing and requested is not None):
            return SyncPriority.SCHEDULED
        return requested

    def _sync_and_reindex(self, entry: WikiEntry, result: "_RunResult") -> None:
        handle = self._service.get_background_handle(entry.wiki.slug)
        if handle.wiki.id != entry.wiki.id:
            raise WikiNotFound("this wiki has been removed", hint="`wikiholt list` shows all wikis")
        if self._service.is_being_removed(entry.wiki.id):
            raise Busy("this wiki is being removed", hint="wait a moment")
        result.head = self._service.get_source(entry.wiki).get_head()
        entry.mark_readable()
        if not self.is_up_to_date(entry, result.head):
            self._refresh_entry(entry, handle)
        if not self.is_up_to_date(entry, result.head):
            with lock_activity(self._service.components.store, entry.wiki.id) as reporter:
                self._sync_once(entry, handle, result.head, reporter)
        entry.in_progress = False
        entry.clear_failures()
        entry.reindexing = self._has_reindex_job(entry)
        if entry.reindexing:
            result.reindexing = True
            with lock_activity(self._service.components.store, entry.wiki.id) as reporter:
                self._make_reindex_runner(entry, reporter).run_slice(
                    handle, self._make_pause_check(entry, reindexing=True)
                )
            self._state.counts["reindexes"] += 1
            self._refresh_entry(entry, handle)

    def _sync_once(self, entry: WikiEntry, handle: WikiHandle, head: str, reporter: ActivityReporter) -> None:
        if self._service.components.store.get_change_token(entry.wiki.id) != entry.change_token:
            self._refresh_entry(entry, handle)
            if self.is_up_to_date(entry, head):
                return  # the previous holder of the lock has done it; no model needs to be loaded
        self._report_progress(entry, "sync", SyncProgress(0, 0, 0), reporter)
        handle.sync(
            lambda progress: self._report_progress(entry, "sync", progress, reporter),
            self._make_pause_check(entry),
            lock_timeout_s=0,
        )
        self._state.counts["syncs"] += 1
        self._refresh_entry(entry, handle)

    def fetch(self, entry: WikiEntry) -> None:
        """Fetch from the wiki's remote and enqueue the wiki if HEAD has changed."""
        began = time.monotonic()
        self._report_progress(entry, "fetch", SyncProgress(0, 0, 0))
        self._record_errors(entry, _RunResult(), lambda: self._fetch_once(entry, began))
        entry.may_hang = entry.failures > 0 and time.monotonic() - began > _LONG_FAILURE_S
        if not entry.running:
            entry.activity = None
        with self._state.changed:
            entry.finished_runs += 1
            self._state.changed.notify_all()

    def _fetch_once(self, entry: WikiEntry, started: float) -> None:
        self._service.get_background_handle(entry.wiki.slug).fetch(lambda: self._state.stopping)
        source = self._service.get_source(entry.wiki)
        self._state.counts["fetches"] += 1
        entry.fetched_at = started
        head = source.get_head()
        entry.mark_readable()
        if entry.failures and head == entry.failed_head and started < entry.retry_at:
            return
        if not self.is_up_to_date(entry, head, trust_token=self._multi_node) or entry.reindexing:
            self._state.enqueue(entry, SyncPriority.INTERACTIVE if entry.fetch_urgent else SyncPriority.SCHEDULED)
        entry.fetch_urgent = False

    def is_up_to_date(self, entry: WikiEntry, head: str, *, trust_token: bool = False) -> bool:
        """Whether the index is known to be at this HEAD. Opens nothing.

        With `trust_token`, a recently read change token is not read again.
        """
        if entry.revision != head or (trust_token and time.monotonic() < entry.trusted_until):
            return entry.revision == head
        entry.trusted_until = time.monotonic() + jitter(0.5, 1.0) * _TOKEN_TTL_S
        return entry.change_token == self._service.components.store.get_change_token(entry.wiki.id)

    def has_words(self, entry: WikiEntry, head: str) -> bool:
        """Whether all pages of this HEAD are found by their words. Opens the index."""
        handle = self._service.get_background_handle(entry.wiki.slug)
        return handle.get_indexed_revision(words_only=True) == head

    def _refresh_entry(self, entry: WikiEntry, handle: WikiHandle) -> None:
        """Read the indexed revision, and the change token by which later changes are detected."""
        store = self._service.components.store
        before = store.get_change_token(entry.wiki.id)
        revision = handle.get_indexed_revision()
        entry.checked, entry.index_ok = True, handle.health.is_ok
        unchanged = store.get_change_token(entry.wiki.id) == before
        entry.revision, entry.change_token = (revision, before) if unchanged else (None, "")

    def _has_reindex_job(self, entry: WikiEntry) -> bool:
        return read_job(self._service.components.store, entry.wiki.id).is_open

    def _record_errors(self, entry: WikiEntry, result: "_RunResult", work: Callable[[], None]) -> None:
        try:
            try:
                work()
            except NoPagesYet as error:
                self._mark_empty(entry, error)
        except SyncPaused:
            result.paused = True
        except (Busy, DatabaseUnavailable) as error:
            if isinstance(error, LockTimeout):  # each try blocks a worker for seconds: increase the delay
                entry.lock_timeouts = min(entry.lock_timeouts + 1, _MAX_LOCK_TIMEOUTS)
            # Neither is the wiki's fault: retry soon, without counting a failure.
            result.busy = True
        except SourceMissing as error:
            # A local path is cheap to check and may come back at any time; a missing remote is tried less and less.
            if entry.is_remote:
                self._record_failure(entry, None, error)
            else:
                self._mark_missing(entry, error)
        except WikiholtError as error:
            self._record_failure(entry, result.head, error)
        except Exception as error:  # noqa: BLE001 - the thread serves all wikis and must not end
            _LOG.exception("%s: internal error", entry.wiki.slug)
            self._record_failure(entry, result.head, WikiholtError(f"{type(error).__name__}: {error}"))
        if self._publish is not None and self._state.get(entry.wiki.id) is entry:
            self._publish(self._service, entry)

    def _mark_empty(self, entry: WikiEntry, error: NoPagesYet) -> None:
        """Record that nobody has written a page yet: not a failure. Raises NoCommits if there were pages before."""
        entry.missing = False
        if entry.is_empty or not self._is_registered(entry):
            return
        self._service.get_background_handle(entry.wiki.slug).require_never_indexed()
        with self._state.changed:
            entry.clear_failures()
            entry.error, entry.checked = error, True
        self._make_reindex_runner(entry).fail(error)

    def _mark_missing(self, entry: WikiEntry, error: WikiholtError) -> None:
        if not self._is_registered(entry):
            return
        if not entry.missing:
            _LOG.warning("%s: the repository is missing; the index is kept", entry.wiki.slug)
        entry.missing = entry.checked = True
        self._make_reindex_runner(entry).fail(error)

    def _record_failure(self, entry: WikiEntry, head: str | None, error: WikiholtError) -> None:
        if self._state.stopping or not self._is_registered(entry):
            return
        with self._state.changed:
            entry.record_failure(error, head, time.monotonic())
            entry.checked = True
            self._state.dequeue(entry)
            self._state.counts["failures"] += 1
        # Log an empty repository only once.
        level = logging.DEBUG if isinstance(error, NoCommits) and entry.failures > 1 else logging.WARNING
        _LOG.log(level, "%s: %s (failure %d in a row)", entry.wiki.slug, error.message, entry.failures)
        self._make_reindex_runner(entry).fail(error)

    def _is_registered(self, entry: WikiEntry) -> bool:
        try:
            self._service.registry.get_by_id(entry.wiki.id)
        except WikiNotFound:
            self._state.remove(entry.wiki.id)
            return False
        except WikiholtError:
            pass
        return True

    def _make_reindex_runner(self, entry: WikiEntry, reporter: ActivityReporter | None = None) -> ReindexRunner:
        return ReindexRunner(
            entry,
            self._service.components.store,
            self._scheduler_id,
            lambda progress: self._report_progress(entry, "reindex", progress, reporter),
        )

    def _make_pause_check(self, entry: WikiEntry, *, reindexing: bool = False) -> PauseCheck:
        """The `pause` callback of a sync that starts now."""
        state, began = self._state, time.monotonic()

        def pause() -> Pause:
            if state.stopping:
                return Pause.NOW
            took = time.monotonic() - began
            urgent = state.has_urgent() or (reindexing and entry.rerun_priority is not None)
            preempted = urgent and took > min(_MAX_PREEMPT_DELAY_S, self._config.slice_s)
            slice_over = took > self._config.slice_s and state.has_waiting()
            # During a reindex, the published index has to follow HEAD.
            head_check_due = reindexing and took > max(self._config.slice_s, entry.interval_s)
            reassigned = state.get(entry.wiki.id) is not entry  # another node continues
            must_pause = slice_over or head_check_due or preempted or reassigned
            return Pause.AFTER_BATCH if must_pause else Pause.CONTINUE

        return pause

    def _report_progress(
        self, entry: WikiEntry, kind: str, progress: SyncProgress, reporter: ActivityReporter | None = None
    ) -> None:
        previous = entry.activity
        since = previous.since if previous is not None and previous.kind == kind else datetime.now(UTC)
        entry.activity = WikiActivity(kind, since, **asdict(progress))
        if reporter is not None:
            reporter.report(entry.activity)


@dataclass(slots=True)
class _RunResult:
    """The outcome of a run."""

    head: str | None = None
    paused: bool = False
    busy: bool = False
    reindexing: bool = False
