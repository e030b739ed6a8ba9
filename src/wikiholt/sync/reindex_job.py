"""Work on an index: reindex jobs, stored beside the index so that they survive a restart, and the running activity."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from wikiholt.domain.index import SyncReport
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.errors import Busy, SourceError, WikiholtError, WikiNotFound
from wikiholt.index.batch import PauseCheck, SyncPaused
from wikiholt.index.reconciler import ProgressCallback, SyncProgress
from wikiholt.sync.wiki_records import WikiActivity, WikiEntry
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService

_JOB_NOTE = "reindex"
_SAVE_INTERVAL_S = 1.0
"""Seconds between two saves of the progress."""


class ReindexState(StrEnum):
    """`none` if the wiki was never reindexed; `queued` until its first run."""

    NONE = "none"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReindexJob:
    """One reindex of one wiki. `resumed` counts how often a process continued the job of another."""

    state: ReindexState = ReindexState.NONE
    id: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    pages_done: int = 0
    pages_total: int = 0
    chunks_embedded: int = 0
    problems: int = 0
    revision: str | None = None
    resumed: int = 0
    scheduler_id: str = ""
    """Id of the scheduler that runs it."""
    error_code: str = ""
    error: str = ""
    hint: str = ""

    @property
    def is_open(self) -> bool:
        return self.state in (ReindexState.QUEUED, ReindexState.RUNNING)


def read_job(store: IndexStore, wiki_id: str) -> ReindexJob:
    """The wiki's last job. An unreadable one counts as none, because a new job can be started at any time."""
    try:
        return _parse_job(json.loads(store.get_note(wiki_id, _JOB_NOTE) or ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ReindexJob()


def write_job(store: IndexStore, wiki_id: str, job: ReindexJob, *, create: bool = False) -> None:
    """Store the job atomically. Without `create`, a removed wiki is ignored. Raises StorageError."""
    store.set_note(wiki_id, _JOB_NOTE, json.dumps(asdict(job), default=datetime.isoformat), create=create)


def complete_job(job: ReindexJob, report: SyncReport) -> ReindexJob:
    """The job after its last slice, which had this report."""
    return replace(
        job,
        state=ReindexState.COMPLETE,
        finished_at=datetime.now(UTC),
        pages_done=report.pages,
        pages_total=report.pages,
        chunks_embedded=job.chunks_embedded + report.chunks_embedded,
        problems=len(report.problems),
        revision=report.revision,
    )


def _parse_job(document: Mapping[str, Any]) -> ReindexJob:
    known = {field.name for field in fields(ReindexJob)}
    values = {name: value for name, value in document.items() if name in known}
    for name in ("started_at", "finished_at"):
        values[name] = datetime.fromisoformat(values[name]) if values.get(name) else None
    return ReindexJob(**{**values, "state": ReindexState(values["state"])})


class ReindexRunner:
    """Runs the job of one wiki in slices."""

    def __init__(self, entry: WikiEntry, store: IndexStore, scheduler_id: str, on_progress: ProgressCallback) -> None:
        self._entry = entry
        self._store = store
        self._scheduler_id = scheduler_id
        self._on_progress = on_progress
        self._job = ReindexJob()
        self._saved_at = 0.0

    def run_slice(self, handle: WikiHandle, pause: PauseCheck) -> None:
        """Run one slice. Raises SyncPaused or Busy when there is more to do. A failure ends the job."""
        job = read_job(self._store, self._entry.wiki.id)
        if not job.is_open:
            self._entry.reindexing = False
            return
        taken_over = job.state is ReindexState.RUNNING and job.scheduler_id != self._scheduler_id
        self._save_job(
            replace(job, state=ReindexState.RUNNING, scheduler_id=self._scheduler_id, resumed=job.resumed + taken_over)
        )
        job = self._job
        try:
            report = handle.sync(self._make_progress_handler(job), pause, lock_timeout_s=0, from_scratch=True)
        except (SyncPaused, Busy):
            self._save_job(self._job)
            raise
        except WikiNotFound:
            raise
        except WikiholtError as error:
            self.fail(error)
            return
        self._entry.reindexing = False
        self._save_job(complete_job(job, report))

    def fail(self, error: WikiholtError) -> None:
        """Mark a running job as failed."""
        if not self._entry.reindexing:
            return
        self._entry.reindexing = False
        job = read_job(self._store, self._entry.wiki.id)
        if job.is_open:
            # The job is public, so it must not contain a local path.
            message = "its repository cannot be read" if isinstance(error, SourceError) else error.message
            self._save_job(
                replace(
                    job,
                    state=ReindexState.FAILED,
                    finished_at=datetime.now(UTC),
                    error_code=error.code,
                    error=message,
                    hint=error.hint,
                )
            )

    def _make_progress_handler(self, previous: ReindexJob) -> ProgressCallback:
        """A progress callback that continues the counts of earlier slices.

        The counts of a slice begin again when HEAD has moved meanwhile: then only the changed pages are left.
        """

        def report(progress: SyncProgress) -> None:
            total = max(self._job.pages_total, progress.pages_total)
            combined = SyncProgress(
                total - progress.pages_total + progress.pages_done,
                total,
                max(self._job.chunks_embedded, previous.chunks_embedded + progress.chunks_embedded),
            )
            self._on_progress(combined)
            self._job = replace(
                self._job,
                pages_done=combined.pages_done,
                pages_total=combined.pages_total,
                chunks_embedded=combined.chunks_embedded,
            )
            if time.monotonic() - self._saved_at > _SAVE_INTERVAL_S:
                self._save_job(self._job)

        return report

    def _save_job(self, job: ReindexJob) -> None:
        self._job, self._saved_at = job, time.monotonic()
        write_job(self._store, self._entry.wiki.id, job)


# Progress of the running sync or reindex, stored so that other processes can read it


_REPORT_INTERVAL_S = 1.0
"""Seconds between two reports."""


class ActivityReporter:
    """Reports progress for one wiki. `report()` never raises; progress is best effort."""

    def __init__(self, write_note: Callable[[str], None]) -> None:
        self._write_note = write_note
        self._reported_at = 0.0
        self._reported_total = -1

    def report(self, activity: WikiActivity) -> None:
        """Store the progress, at most once a second, but a new number of pages at once."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_INTERVAL_S and activity.pages_total == self._reported_total:
            return
        self._reported_at, self._reported_total = now, activity.pages_total
        self._write_note(json.dumps(asdict(activity), default=datetime.isoformat))


@contextmanager
def lock_activity(store: IndexStore, wiki_id: str) -> Iterator[ActivityReporter]:
    """Acquire the wiki's activity lock across processes. Raises Busy if it is held, and StorageError."""
    with store.activity_lock(wiki_id) as write_note:
        yield ActivityReporter(write_note)


@contextmanager
def report_activity(service: WikiService, wiki_id: str, kind: str) -> Iterator[ProgressCallback]:
    """A callback that stores the progress for `status` in other processes, unless another process works on the wiki."""
    since = datetime.now(UTC)
    with ExitStack() as stack:
        try:
            reporter = stack.enter_context(lock_activity(service.components.store, wiki_id))
        except Busy:
            yield lambda _: None
            return
        reporter.report(WikiActivity(kind, since))
        yield lambda progress: reporter.report(
            WikiActivity(kind, since, **asdict(progress) | {"chunks_embedded": progress.chunks_done})
        )


def read_activity(store: IndexStore, wiki_id: str) -> WikiActivity | None:
    """The activity of any process for the wiki, or None."""
    try:
        note = json.loads(store.get_activity(wiki_id) or "")
        return WikiActivity(**{**note, "since": datetime.fromisoformat(note["since"])})
    except (ValueError, TypeError, KeyError):
        return None


@dataclass(frozen=True, slots=True)
class WikiWork:
    """The running activity of a wiki in any process, and its last reindex job."""

    activity: WikiActivity | None
    job: ReindexJob

    @property
    def is_reindex_unfinished(self) -> bool:
        """Whether a reindex is incomplete and not running: it is queued, or was interrupted."""
        return self.job.is_open and self.activity is None


def read_wiki_work(service: WikiService, wiki_id: str) -> WikiWork:
    store = service.components.store
    return WikiWork(read_activity(store, wiki_id), read_job(store, wiki_id))


def finish_reindex_job(service: WikiService, wiki_id: str, report: SyncReport) -> None:
    """Mark an interrupted reindex job of the service as complete after a reindex by this process."""
    work = read_wiki_work(service, wiki_id)
    if work.is_reindex_unfinished:
        write_job(service.components.store, wiki_id, complete_job(work.job, report))
