"""An index that several wikis share: its rows, and the wiki that owns each row."""

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Protocol

from wikiholt.domain.index import FloatArray
from wikiholt.text.links import fold_path

_CHUNK_MARKER = "::chunk_"
MAX_EXAMPLES = 10
IGNORE = "-"
"""In a rule, the owner of rows to exclude."""


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One chunk of a foreign index. Untrusted input."""

    page: str
    text: str
    vector: FloatArray
    tenant: str | None = None
    """The owner that the index names; None if it names none."""
    index: int | None = None
    model: str = ""
    """The model that created the vector, if the index names it."""


SharedRows = Generator[SharedRow, None, None]


class SharedIndex(Protocol):
    """A shared index, opened for reading only."""

    @property
    def name(self) -> str:
        """The name for messages, without secrets."""

    def iter_rows(self) -> SharedRows:
        """Every row once. Raises InvalidImport if it cannot be read completely. Closing it frees its resources."""


def parse_row_id(row_id: str, metadata: object) -> tuple[str, int | None]:
    """Page path and chunk number of a row of otterwiki-semantic-search, from its metadata or its id."""
    fields = metadata if isinstance(metadata, dict) else {}
    stem, marker, number = row_id.rpartition(_CHUNK_MARKER)
    page, index = fields.get("page_path"), fields.get("chunk_index")
    if not isinstance(page, str) or not page:
        page = stem if marker else ""
    if not isinstance(index, int) or isinstance(index, bool):
        index = parse_number(number) if marker else None
    return page, index


def parse_number(text: str) -> int | None:
    """A small number in decimal digits, or None."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


class RowOutcome(StrEnum):
    """The result of looking up the owner of a row."""

    OWNED = "owned"
    NO_PAGE = "no-page"
    LEFT_OUT = "left-out"
    UNKNOWN_TENANT = "unknown-tenant"
    SEVERAL_WIKIS = "several-wikis"


@dataclass(frozen=True, slots=True)
class OwnershipRules:
    """Owners that the operator specified: slugs, or IGNORE."""

    owners: tuple[tuple[str, str], ...] = ()
    """Patterns of page paths, for rows without a tenant. The first match counts."""
    tenants: Mapping[str, str] = field(default_factory=dict)

    def list_slugs(self) -> list[str]:
        """The wikis that the rules name."""
        return [slug for slug in (*(slug for _, slug in self.owners), *self.tenants.values()) if slug != IGNORE]

    def find_wiki(self, tenant: str | None, page: str, slugs: Collection[str]) -> str | None:
        """The owner of a row: that of its tenant, which may be one of these wikis, or that of its page; None if the
        rules name none."""
        if tenant is not None:
            return self.tenants.get(tenant, tenant if tenant in slugs else None)
        path = page.casefold()
        return next((slug for pattern, slug in self.owners if fnmatchcase(path, pattern.casefold())), None)


class OwnershipResolver:
    """Finds the owner of a row: named by the operator or the index, or the only wiki with the page. Never guesses."""

    def __init__(self, pages: Mapping[str, Iterable[str]], rules: OwnershipRules) -> None:
        """`pages` are the files of each wiki, by slug."""
        self._slugs = frozenset(pages)
        self._rules = rules
        self._wikis_by_path: dict[str, list[str]] = {}
        for slug, files in pages.items():
            for key in {fold_path(file) for file in files}:
                self._wikis_by_path.setdefault(key, []).append(slug)

    def resolve(self, tenant: str | None, page: str) -> tuple[RowOutcome, tuple[str, ...]]:
        """The outcome for a row, with its owner or its possible owners."""
        candidates = self._wikis_by_path.get(fold_path(page.strip("/")), [])
        owner = self._rules.find_wiki(tenant, page, self._slugs)
        if owner is None and tenant is not None:
            return RowOutcome.UNKNOWN_TENANT, ()
        if owner == IGNORE:
            return RowOutcome.LEFT_OUT, ()
        if owner is not None:
            candidates = [owner] if owner in candidates else []
        if len(candidates) > 1:
            return RowOutcome.SEVERAL_WIKIS, tuple(candidates)
        return (RowOutcome.OWNED if candidates else RowOutcome.NO_PAGE), tuple(candidates)


@dataclass(frozen=True, slots=True)
class DroppedRows:
    """Rows that were not imported, by reason, with examples of their pages."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, reason: str, row: SharedRow) -> None:
        self.counts[reason] += 1
        examples = self.examples.setdefault(reason, [])
        name = row.page if row.tenant is None else f"{row.tenant}: {row.page}"
        if len(examples) < MAX_EXAMPLES and name not in examples:
            examples.append(name)


@dataclass(frozen=True, slots=True)
class UnclearOwnership:
    """Rows whose owner the operator must specify before anything is imported."""

    pages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Pages that several wikis have, with their wikis."""
    tenants: Counter[str] = field(default_factory=Counter)
    """Tenants that are not wikis here, with their number of rows."""

    def add(self, row: SharedRow, wikis: tuple[str, ...] = ()) -> None:
        if row.tenant is None:
            self.pages[row.page] = wikis
        else:
            self.tenants[row.tenant] += 1

    def __bool__(self) -> bool:
        return bool(self.pages or self.tenants)
