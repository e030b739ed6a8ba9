"""Progress of the sync or reindex that is running for a wiki, stored so that other processes can read it,
and the reindex that a process left unfinished."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from wikiholt.domain.index import SyncReport
from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.scheduler.reindex_job import ReindexJob, ReindexState, read_job, write_job
from wikiholt.scheduler.wiki_records import WikiActivity
from wikiholt.wikis.service import WikiService

_REPORT_INTERVAL_S = 1.0
"""Seconds between two reports."""


class ActivityReporter:
    """Reports progress for one wiki. `report()` never raises; progress is best effort."""

    def __init__(self, write_note: Callable[[str], None]) -> None:
        self._write_note = write_note
        self._reported_at = 0.0

    def report(self, activity: WikiActivity) -> None:
        """Store the progress, at most once a second."""
        now = time.monotonic()
        if now - self._reported_at < _REPORT_INTERVAL_S:
            return
        self._reported_at = now
        self._write_note(json.dumps({**asdict(activity), "since": activity.since.isoformat()}))


@contextmanager
def lock_activity(store: IndexStore, wiki_id: str) -> Iterator[ActivityReporter]:
    """Acquire the wiki's activity lock across processes. Raises Busy if it is held, and StorageError."""
    with store.activity_lock(wiki_id) as write_note:
        yield ActivityReporter(write_note)


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
        job = replace(
            work.job,
            state=ReindexState.COMPLETE,
            finished_at=datetime.now(UTC),
            pages_done=work.job.pages_total,
            problems=len(report.problems),
            revision=report.revision,
        )
        write_job(service.components.store, wiki_id, job)
