"""One wiki's reindexing, turn by turn, with its state kept after each."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from wikiholt.batches import Pause, SyncPaused
from wikiholt.errors import Busy, SourceError, WikiholtError, WikiNotFound
from wikiholt.handle import WikiHandle
from wikiholt.keeper.entries import WikiEntry
from wikiholt.keeper.jobs import ReindexJob, ReindexState, read_job, write_job
from wikiholt.ports import IndexStore
from wikiholt.sync import SyncProgress

_SAVE_INTERVAL_S = 1.0
"""Seconds between two writings of how far it is."""


class ReindexRunner:
    """The job of one wiki, in the hands of the keeper `me`."""

    def __init__(self, entry: WikiEntry, store: IndexStore, scheduler_id: str, on_progress: Callable[[SyncProgress], None]) -> None:
        self._entry = entry
        self._store = store
        self._scheduler_id = scheduler_id
        self._on_progress = on_progress
        self._job = ReindexJob()
        self._saved_at = 0.0

    def run_slice(self, handle: WikiHandle, pause: Callable[[], Pause]) -> None:
        """Have one turn; raises Paused or Busy when there is more to do. A failure ends the job, not the wiki."""
        found = read_job(self._store, self._entry.wiki.id)
        if not found.is_open:
            self._entry.reindexing = False
            return
        taken_over = found.state is ReindexState.RUNNING and found.keeper != self._scheduler_id
        self._save_job(replace(found, state=ReindexState.RUNNING, keeper=self._scheduler_id, resumed=found.resumed + taken_over))
        try:
            report = handle.reindex(self._make_progress_handler(self._job), pause, lock_timeout=0)
        except (SyncPaused, Busy):
            self._save_job(self._job)
            raise
        except WikiNotFound:
            raise
        except WikiholtError as error:
            self.fail(error)
            return
        self._entry.reindexing = False
        done = self._job.pages_total
        self._save_job(
            replace(
                self._job,
                state=ReindexState.COMPLETE,
                finished_at=datetime.now(UTC),
                pages_done=done,
                problems=len(report.problems),
                revision=report.revision,
            )
        )

    def fail(self, error: WikiholtError) -> None:
        """If there is a job under way, it has failed."""
        if not self._entry.reindexing:
            return
        self._entry.reindexing = False
        found = read_job(self._store, self._entry.wiki.id)
        if found.is_open:
            # Whoever reads this may be a visitor; where the repository lies on this machine is none of theirs.
            message = "its repository cannot be read" if isinstance(error, SourceError) else error.message
            self._save_job(
                replace(
                    found,
                    state=ReindexState.FAILED,
                    finished_at=datetime.now(UTC),
                    error_code=error.code,
                    error=message,
                    hint=error.hint,
                )
            )

    def _make_progress_handler(self, previous: ReindexJob) -> Callable[[SyncProgress], None]:
        """Counts on from where the turn before stopped."""

        def report(progress: SyncProgress) -> None:
            total = max(previous.pages_total, progress.pages_total)
            whole = SyncProgress(
                total - progress.pages_total + progress.pages_done, total, previous.chunks_embedded + progress.chunks_embedded
            )
            self._on_progress(whole)
            self._job = replace(
                self._job,
                pages_done=whole.pages_done,
                pages_total=whole.pages_total,
                chunks_embedded=whole.chunks_embedded,
            )
            if time.monotonic() - self._saved_at > _SAVE_INTERVAL_S:
                self._save_job(self._job)

        return report

    def _save_job(self, job: ReindexJob) -> None:
        self._job, self._saved_at = job, time.monotonic()
        write_job(self._store, self._entry.wiki.id, job)
