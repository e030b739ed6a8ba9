"""A wiki's reindexing as a job that outlives the process: one small note with the wiki's index."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from wikiholt.ports import IndexStore

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
