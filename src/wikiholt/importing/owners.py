"""Whose a row of a shared index is. Pure; an owner is told or follows from the pages there are, never guessed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from wikiholt.text.links import folded

NOBODY = "-"
"""In a rule, the owner of what is to be left out."""


class Fate(StrEnum):
    """What becomes of a row."""

    OWNED = "owned"
    NO_PAGE = "no-page"
    LEFT_OUT = "left-out"
    UNKNOWN_TENANT = "unknown-tenant"
    SEVERAL_WIKIS = "several-wikis"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the operator says of owners; a slug, or NOBODY."""

    owners: tuple[tuple[str, str], ...] = ()
    """Patterns of page paths, for rows that name no tenant; the first that fits counts."""
    tenants: Mapping[str, str] = field(default_factory=dict)

    def owner(self, page: str) -> str | None:
        path = page.casefold()
        return next((slug for pattern, slug in self.owners if fnmatchcase(path, pattern.casefold())), None)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A row's fate, and its owner or those it could have."""

    fate: Fate
    wikis: tuple[str, ...] = ()


class Owners:
    """Knows which pages each wiki has at HEAD."""

    def __init__(self, pages: Mapping[str, Iterable[str]], rules: Rules) -> None:
        """`pages` are the files of each wiki, by slug."""
        self._slugs = frozenset(pages)
        self._rules = rules
        self._homes: dict[str, list[str]] = {}
        for slug, files in pages.items():
            for key in {folded(file) for file in files}:
                self._homes.setdefault(key, []).append(slug)

    def of(self, tenant: str | None, page: str) -> Verdict:
        homes = self._homes.get(folded(page.strip("/")), [])
        if tenant is None:
            told = self._rules.owner(page)
        else:
            told = self._rules.tenants.get(tenant, tenant if tenant in self._slugs else None)
            if told is None:
                return Verdict(Fate.UNKNOWN_TENANT)
        if told == NOBODY:
            return Verdict(Fate.LEFT_OUT)
        if told is not None:
            return Verdict(Fate.OWNED, (told,)) if told in homes else Verdict(Fate.NO_PAGE)
        if len(homes) > 1:
            return Verdict(Fate.SEVERAL_WIKIS, tuple(homes))
        return Verdict(Fate.OWNED, (homes[0],)) if homes else Verdict(Fate.NO_PAGE)
