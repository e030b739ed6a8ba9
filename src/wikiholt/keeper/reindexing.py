"""One wiki's reindexing, turn by turn, with its state kept after each."""

import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from wikiholt.batches import Pause, Paused
from wikiholt.errors import Busy, SourceError, WikiholtError, WikiNotFound
from wikiholt.handle import WikiHandle
from wikiholt.keeper.entries import Entry
from wikiholt.keeper.jobs import Job, JobState, read_job, write_job
from wikiholt.ports import Store
from wikiholt.sync import Progress

_KEPT_EVERY = 1.0
"""Seconds between two writings of how far it is."""


class Reindexing:
    """The job of one wiki, in the hands of the keeper `me`."""

    def __init__(self, entry: Entry, store: Store, me: str, tell: Callable[[Progress], None]) -> None:
        self._entry = entry
        self._store = store
        self._me = me
        self._tell = tell
        self._job = Job()
        self._kept = 0.0

    def go_on(self, handle: WikiHandle, pause: Callable[[], Pause]) -> None:
        """Have one turn; raises Paused or Busy when there is more to do. A failure ends the job, not the wiki."""
        found = read_job(self._store, self._entry.wiki.id)
        if not found.open:
            self._entry.job = False
            return
        taken_over = found.state is JobState.RUNNING and found.keeper != self._me
        self._keep(replace(found, state=JobState.RUNNING, keeper=self._me, resumed=found.resumed + taken_over))
        try:
            report = handle.reindex(self._progress(self._job), pause, patience=0)
        except (Paused, Busy):
            self._keep(self._job)
            raise
        except WikiNotFound:
            raise
        except WikiholtError as error:
            self.fail(error)
            return
        self._entry.job = False
        done = self._job.pages_total
        self._keep(
            replace(
                self._job,
                state=JobState.COMPLETE,
                finished_at=datetime.now(UTC),
                pages_done=done,
                problems=len(report.problems),
                revision=report.revision,
            )
        )

    def fail(self, error: WikiholtError) -> None:
        """If there is a job under way, it has failed."""
        if not self._entry.job:
            return
        self._entry.job = False
        found = read_job(self._store, self._entry.wiki.id)
        if found.open:
            # Whoever reads this may be a visitor; where the repository lies on this machine is none of theirs.
            message = "its repository cannot be read" if isinstance(error, SourceError) else error.message
            self._keep(
                replace(
                    found,
                    state=JobState.FAILED,
                    finished_at=datetime.now(UTC),
                    error_code=error.code,
                    error=message,
                    hint=error.hint,
                )
            )

    def _progress(self, before: Job) -> Callable[[Progress], None]:
        """Counts on from where the turn before stopped."""

        def tell(done: Progress) -> None:
            total = max(before.pages_total, done.pages_total)
            whole = Progress(
                total - done.pages_total + done.pages_done, total, before.chunks_embedded + done.chunks_embedded
            )
            self._tell(whole)
            self._job = replace(
                self._job,
                pages_done=whole.pages_done,
                pages_total=whole.pages_total,
                chunks_embedded=whole.chunks_embedded,
            )
            if time.monotonic() - self._kept > _KEPT_EVERY:
                self._keep(self._job)

        return tell

    def _keep(self, job: Job) -> None:
        self._job, self._kept = job, time.monotonic()
        write_job(self._store, self._entry.wiki.id, job)
