"""Whose a row of a shared index is. Pure; an owner is told or follows from the pages there are, never guessed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from wikiholt.text.links import fold_path

IGNORE = "-"
"""In a rule, the owner of what is to be left out."""


class RowOutcome(StrEnum):
    """What becomes of a row."""

    OWNED = "owned"
    NO_PAGE = "no-page"
    LEFT_OUT = "left-out"
    UNKNOWN_TENANT = "unknown-tenant"
    SEVERAL_WIKIS = "several-wikis"


@dataclass(frozen=True, slots=True)
class OwnershipRules:
    """What the operator says of owners; a slug, or NOBODY."""

    owners: tuple[tuple[str, str], ...] = ()
    """Patterns of page paths, for rows that name no tenant; the first that fits counts."""
    tenants: Mapping[str, str] = field(default_factory=dict)

    def find_owner(self, page: str) -> str | None:
        path = page.casefold()
        return next((slug for pattern, slug in self.owners if fnmatchcase(path, pattern.casefold())), None)


@dataclass(frozen=True, slots=True)
class Ownership:
    """A row's fate, and its owner or those it could have."""

    outcome: RowOutcome
    wikis: tuple[str, ...] = ()


class OwnershipResolver:
    """Knows which pages each wiki has at HEAD."""

    def __init__(self, pages: Mapping[str, Iterable[str]], rules: OwnershipRules) -> None:
        """`pages` are the files of each wiki, by slug."""
        self._slugs = frozenset(pages)
        self._rules = rules
        self._wikis_by_path: dict[str, list[str]] = {}
        for slug, files in pages.items():
            for key in {fold_path(file) for file in files}:
                self._wikis_by_path.setdefault(key, []).append(slug)

    def resolve(self, tenant: str | None, page: str) -> Ownership:
        homes = self._wikis_by_path.get(fold_path(page.strip("/")), [])
        if tenant is None:
            told = self._rules.find_owner(page)
        else:
            told = self._rules.tenants.get(tenant, tenant if tenant in self._slugs else None)
            if told is None:
                return Ownership(RowOutcome.UNKNOWN_TENANT)
        if told == IGNORE:
            return Ownership(RowOutcome.LEFT_OUT)
        if told is not None:
            return Ownership(RowOutcome.OWNED, (told,)) if told in homes else Ownership(RowOutcome.NO_PAGE)
        if len(homes) > 1:
            return Ownership(RowOutcome.SEVERAL_WIKIS, tuple(homes))
        return Ownership(RowOutcome.OWNED, (homes[0],)) if homes else Ownership(RowOutcome.NO_PAGE)
