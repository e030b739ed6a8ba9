"""The wikis themselves."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


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
