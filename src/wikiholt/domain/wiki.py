"""Values of registered wikis, keys, databases and backups."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it needs numpy, which a command that lists wikis does not
    from wikiholt.domain.index import IndexState


MANAGED_KIND = "managed"
"""The kind of a wiki whose repository Wikiholt creates and deletes."""


@dataclass(frozen=True, slots=True)
class Wiki:
    """A registered wiki: users know it by its slug, files and tables by its id."""

    id: str
    slug: str
    source: str
    created_at: datetime
    settings: Mapping[str, str] = field(default_factory=dict)
    repository: str = ""
    """Identifies the repository, so that another one at the same path is detected; empty if unknown."""

    @property
    def is_directory(self) -> bool:
        """Whether its pages are the files in a directory, not those in a git repository."""
        return self.settings.get("kind") == "directory"

    @property
    def is_managed(self) -> bool:
        """Whether Wikiholt itself keeps its repository, which has the only copy of its pages."""
        return self.settings.get("kind") == MANAGED_KIND

    @property
    def location(self) -> tuple[str, str]:
        """The repository's path and, as far as known, its creation time."""
        return self.source, self.repository.removeprefix("marked").strip()


class Scope(StrEnum):
    """What a key grants; each scope includes the ones before it."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"

    def allows(self, required: "Scope") -> bool:
        order = tuple(Scope)
        return order.index(self) >= order.index(required)


@dataclass(frozen=True, slots=True)
class Key:
    """A key without its secret. `wiki_id` is None for an operator's key."""

    id: str
    wiki_id: str | None
    scope: Scope
    label: str
    created_at: datetime
    expires_at: datetime | None

    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= datetime.now(UTC)


# Databases.


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """The status of one database. `address` has no secrets; `error` says why the database did not answer, if so."""

    name: str
    address: str
    open: bool
    """Whether the database accepts new wikis."""
    weight: float
    wikis: int
    behind: int
    """Number of wikis whose tables have an older layout than this program writes."""
    server: str = ""
    vector: str = ""
    """Versions of PostgreSQL and of pgvector."""
    error: str = ""
    shortage: str = ""
    """Why the server's connections do not suffice for the nodes; empty if they do."""


# Backups of an index and of the registry.


class BackupReason(StrEnum):
    """Why a backup was made."""

    REQUESTED = "asked"
    SCHEDULED = "scheduled"
    BEFORE_PUBLISHING = "before-publishing"
    BEFORE_RESTORING = "before-restoring"


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup of one wiki's index. If it is unusable, `state` is None and `fault` says why."""

    name: str
    taken_at: datetime
    reason: str
    bytes: int
    state: "IndexState | None"
    fault: str = ""


@dataclass(frozen=True, slots=True)
class RegistryBackup:
    """A backup of the registry. If it is unusable, `fault` says why."""

    name: str
    taken_at: datetime
    reason: str
    bytes: int
    wikis: int
    keys: int
    fault: str = ""
