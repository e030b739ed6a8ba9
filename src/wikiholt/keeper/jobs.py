"""A wiki's reindexing as a job that outlives the process: one small note with the wiki's index."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from wikiholt.ports import Store

_NAME = "reindex"


class JobState(StrEnum):
    """`none` when the wiki was never reindexed; `queued` until its first turn."""

    NONE = "none"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Job:
    """One reindexing of one wiki. `resumed` counts how often a process took it up that another had left unfinished."""

    state: JobState = JobState.NONE
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
    def open(self) -> bool:
        return self.state in (JobState.QUEUED, JobState.RUNNING)


def read_job(store: Store, wiki_id: str) -> Job:
    """The wiki's last job; one that cannot be read counts as none, for a new one can be started at any time."""
    try:
        return _job(json.loads(store.note(wiki_id, _NAME) or ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        return Job()


def write_job(store: Store, wiki_id: str, job: Job, *, make: bool = False) -> None:
    """Keep the job, whole or not at all; without `make` a wiki that is gone is left so. Raises StorageRefused."""
    document = {name: _plain(value) for name, value in asdict(job).items()}
    store.keep_note(wiki_id, _NAME, json.dumps(document), make=make)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _job(document: Mapping[str, Any]) -> Job:
    known = {field.name for field in fields(Job)}
    values = {name: value for name, value in document.items() if name in known}
    for name in ("started_at", "finished_at"):
        values[name] = datetime.fromisoformat(values[name]) if values.get(name) else None
    return Job(**{**values, "state": JobState(values["state"])})
