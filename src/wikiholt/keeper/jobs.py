"""A wiki's reindexing as a job that outlives the process: one small file in the wiki's own directory."""

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from wikiholt.errors import StorageRefused

_NAME = "reindex.json"


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


def read_job(directory: Path) -> Job:
    """The wiki's last job; one that cannot be read counts as none, for a new one can be started at any time."""
    try:
        document = json.loads((directory / _NAME).read_text("utf-8"))
        return _job(document)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Job()


def write_job(directory: Path, job: Job, *, make: bool = False) -> None:
    """Keep the job, whole or not at all; without `make` a directory that is gone is left so, for the wiki is too."""
    draft = directory / f"{_NAME}.{secrets.token_hex(4)}"
    try:
        if make:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        elif not directory.exists():
            return
        with draft.open("w", encoding="utf-8") as out:
            json.dump({name: _plain(value) for name, value in asdict(job).items()}, out)
            out.flush()
            os.fsync(out.fileno())
        draft.replace(directory / _NAME)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise StorageRefused(
            f"the state of the reindexing cannot be written ({error.strerror or error})",
            hint="check free disk space and the directory's permissions",
        ) from error


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _job(document: Mapping[str, Any]) -> Job:
    known = {field.name for field in fields(Job)}
    values = {name: value for name, value in document.items() if name in known}
    for name in ("started_at", "finished_at"):
        values[name] = datetime.fromisoformat(values[name]) if values.get(name) else None
    return Job(**{**values, "state": JobState(values["state"])})
