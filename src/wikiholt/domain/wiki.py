"""The wikis themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from wikiholt.domain.index import IndexState


@dataclass(frozen=True, slots=True)
class Wiki:
    """A wiki in the registry: its slug is what people type, its id is what names things on disk."""

    id: str
    slug: str
    source: str
    created_at: datetime
    settings: Mapping[str, str] = field(default_factory=dict)
    repository: str = ""
    """What tells its repository from another at the same path (`sources/identity.py`); empty where nothing does."""

    @property
    def get_location(self) -> tuple[str, str]:
        """Where its repository lies, and when that was created, as far as it is known."""
        return self.source, self.repository.removeprefix("marked").strip()


class Scope(StrEnum):
    """What a key allows; each allows what the ones before it do."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def allows(self, required: "Scope") -> bool:
        order = tuple(Scope)
        return order.index(self) >= order.index(required)


@dataclass(frozen=True, slots=True)
class Key:
    """A key as the registry knows it, without its secret. `wiki_id` is None for an operator's key."""

    id: str
    wiki_id: str | None
    scope: Scope
    label: str
    created_at: datetime
    expires_at: datetime | None


# How a database stands that holds indexes.


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """One database. `address` is without secrets; `away` says why it could not be asked, and is empty where it was."""

    name: str
    address: str
    open: bool
    """Whether new wikis go there."""
    weight: float
    wikis: int
    behind: int
    """Wikis there whose tables are of an older layout than this program writes."""
    server: str = ""
    vector: str = ""
    """Versions of PostgreSQL and of pgvector."""
    away: str = ""


# Copies of an index that were kept, and of the registry.


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
