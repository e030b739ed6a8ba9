"""Copies of an index that were kept, and of the registry."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from wikiholt.model.index import IndexState


class BackupReason(StrEnum):
    """Why a copy was made."""

    REQUESTED = "asked"
    SCHEDULED = "scheduled"
    BEFORE_PUBLISHING = "before-publishing"
    BEFORE_RESTORING = "before-restoring"


@dataclass(frozen=True, slots=True)
class Backup:
    """One wiki's index as it was at a moment. `state` is None, and `fault` says why, where it cannot be used."""

    name: str
    taken_at: datetime
    reason: str
    bytes: int
    state: IndexState | None
    fault: str = ""


@dataclass(frozen=True, slots=True)
class RegistryBackup:
    """The registry as it was at a moment; `fault` says why it cannot be used, where that is so."""

    name: str
    taken_at: datetime
    reason: str
    bytes: int
    wikis: int
    keys: int
    fault: str = ""
