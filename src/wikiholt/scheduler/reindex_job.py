"""A wiki's reindexing as a job that outlives the process: one small note with the wiki's index."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from wikiholt.domain.storage_protocols import IndexStore
from wikiholt.errors import Busy, SourceError, WikiholtError, WikiNotFound
from wikiholt.indexing.batch import Pause, SyncPaused
from wikiholt.indexing.reconciler import SyncProgress
from wikiholt.scheduler.wiki_records import WikiEntry
from wikiholt.wikis.handle import WikiHandle

_JOB_NOTE = "reindex"


class ReindexState(StrEnum):
    """`none` when the wiki was never reindexed; `queued` until its first turn."""

    NONE = "none"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class ReindexJob:
    """One reindexing of one wiki. `resumed` counts how often a process took it up that another had left unfinished."""

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
    keeper: str = ""
    """Which process's keeper has it in hand."""
    error_code: str = ""
    error: str = ""
    hint: str = ""

    @property
    def is_open(self) -> bool:
        return self.state in (ReindexState.QUEUED, ReindexState.RUNNING)


def read_job(store: IndexStore, wiki_id: str) -> ReindexJob:
    """The wiki's last job; one that cannot be read counts as none, for a new one can be started at any time."""
    try:
        return _parse_job(json.loads(store.get_note(wiki_id, _JOB_NOTE) or ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        return ReindexJob()


def write_job(store: IndexStore, wiki_id: str, job: ReindexJob, *, create: bool = False) -> None:
    """Keep the job, whole or not at all; without `make` a wiki that is gone is left so. Raises StorageRefused."""
    document = {name: _to_json_value(value) for name, value in asdict(job).items()}
    store.set_note(wiki_id, _JOB_NOTE, json.dumps(document), create=create)


def _to_json_value(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _parse_job(document: Mapping[str, Any]) -> ReindexJob:
    known = {field.name for field in fields(ReindexJob)}
    values = {name: value for name, value in document.items() if name in known}
    for name in ("started_at", "finished_at"):
        values[name] = datetime.fromisoformat(values[name]) if values.get(name) else None
    return ReindexJob(**{**values, "state": ReindexState(values["state"])})


# One wiki's reindexing, turn by turn, with its state kept after each.


_SAVE_INTERVAL_S = 1.0
"""Seconds between two writings of how far it is."""


class ReindexRunner:
    """The job of one wiki, in the hands of the keeper `me`."""

    def __init__(
        self, entry: WikiEntry, store: IndexStore, scheduler_id: str, on_progress: Callable[[SyncProgress], None]
    ) -> None:
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
        self._save_job(
            replace(found, state=ReindexState.RUNNING, keeper=self._scheduler_id, resumed=found.resumed + taken_over)
        )
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
                total - progress.pages_total + progress.pages_done,
                total,
                previous.chunks_embedded + progress.chunks_embedded,
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
