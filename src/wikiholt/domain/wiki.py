"""Values of registered wikis, keys, persons, databases and backups."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import TYPE_CHECKING

from wikiholt.domain.git import Author

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
    PAST = "past"
    """Also search the wiki as it was, with what was removed."""
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

HOME_DATABASE = "home"
"""The database of the setting `store`, with the registry."""


MAX_WIKIS = 10_000
"""How many wikis a database may have unless another limit is set. More were not measured."""


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """The status of one database. `address` has no secrets; `error` says why the database did not answer, if so."""

    name: str
    address: str
    open: bool
    """Whether the database accepts new wikis."""
    weight: float
    wikis: int
    max_wikis: int
    server: str = ""
    vector: str = ""
    """Versions of PostgreSQL and of pgvector."""
    error: str = ""
    shortage: str = ""
    """Why the server's connections do not suffice for the nodes; empty if they do."""
    replication_fault: str = ""
    """Why acknowledged writes can be lost; empty if they cannot."""


# Backups of an index and of the registry.


class BackupReason(StrEnum):
    """Why a backup was made."""

    REQUESTED = "requested"
    SCHEDULED = "scheduled"
    AFTER_CHANGE = "after-change"
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


# Persons that an authenticating proxy or an OpenID provider has identified.

MAX_NAME_CHARS = 200
_EMAIL_PATTERN = re.compile(r"[^\s<>@\x00-\x1f]+@[^\s<>@\x00-\x1f]+")


class PersonOrigin(StrEnum):
    """Who identified a person."""

    PROXY = "proxy"
    OIDC = "oidc"
    OWNER = "owner"
    """The user that runs the service, in a browser on the same machine."""


@dataclass(frozen=True, slots=True)
class Person:
    """A person and their groups. `subject` is unique among the persons of the same origin."""

    origin: PersonOrigin
    subject: str
    name: str = ""
    email: str = ""
    groups: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Identifies the person in rate limits and commits, without their name."""
        digest = blake2b(f"{self.origin}\0{self.subject}".encode("utf-8", "replace"), digest_size=8)
        return f"person-{digest.hexdigest()}"

    @property
    def label(self) -> str:
        """The name to show."""
        return self.name or self.subject

    def to_author(self) -> Author:
        """The author of the person's commits."""
        return make_author(self.label, self.email, self.id, default_name="Person")


def make_author(name: str, email: str, fallback_id: str, *, default_name: str) -> Author:
    """The author of commits, from a name and an address that git may not accept."""
    clean_name = re.sub(r"[<>\x00-\x1f\x7f]", "", name).strip()[:MAX_NAME_CHARS]
    is_address = len(email) < 255 and _EMAIL_PATTERN.fullmatch(email)
    return Author(
        clean_name if any(map(str.isalnum, clean_name)) else default_name,
        email if is_address else f"{fallback_id}@wikiholt.invalid",
    )
