"""What an import asks of an index that several wikis share: its rows, whatever holds them."""

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from itertools import islice
from typing import Protocol

import numpy as np

from wikiholt.app.importer.import_report import MAX_EXAMPLES, DroppedRows, UnclearOwnership
from wikiholt.app.importer.vector_spool import VectorSpool
from wikiholt.domain.index import FloatArray
from wikiholt.indexing.pipeline import hash_text
from wikiholt.text.links import fold_path

_CHUNK_MARKER = "::chunk_"


@dataclass(frozen=True, slots=True)
class SharedRow:
    """One chunk as a stranger wrote it; nothing in it is trusted."""

    page: str
    text: str
    vector: FloatArray
    tenant: str | None = None
    """Whose it is, where the index tells; None where it does not."""
    index: int | None = None
    model: str = ""
    """What made the vector, where the index tells."""


SharedRows = Generator[SharedRow, None, None]


class SharedIndex(Protocol):
    """A shared index, opened for reading only."""

    @property
    def name(self) -> str:
        """What the operator called it, without secrets."""

    def iter_rows(self) -> SharedRows:
        """Every row, once; raises InvalidImport where it cannot be read to the end. Closing ends what it began."""


def parse_row_id(row_id: str, metadata: object) -> tuple[str, int | None]:
    """Page path and chunk number of a row that otterwiki-semantic-search wrote: by its metadata, else by its id."""
    told = metadata if isinstance(metadata, dict) else {}
    stem, mark, number = row_id.rpartition(_CHUNK_MARKER)
    page, index = told.get("page_path"), told.get("chunk_index")
    if not isinstance(page, str) or not page:
        page = stem if mark else ""
    if not isinstance(index, int) or isinstance(index, bool):
        index = int(number) if mark and number.isascii() and number.isdigit() and len(number) < 10 else None
    return page, index


def parse_json(text: str | bytes) -> object:
    """A JSON document from elsewhere; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


# Whose a row of a shared index is. Pure; an owner is told or follows from the pages there are, never guessed.


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


# From the rows of a shared index to vectors by wiki; what belongs to nobody is counted, with examples.


_BATCH_ROWS = 1000
_WRONG_DIMENSIONS = "wrong-dimensions"
_UNUSABLE_VECTOR = "unusable-vector"


@dataclass(slots=True)
class ReadSummary:
    """What was read."""

    rows: int = 0
    rows_by_wiki: dict[str, int] = field(default_factory=dict)
    _dropped: dict[str, int] = field(default_factory=dict)
    _examples: dict[str, list[str]] = field(default_factory=dict)
    _pages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _tenants: dict[str, int] = field(default_factory=dict)

    @property
    def dropped(self) -> DroppedRows:
        return DroppedRows(dict(self._dropped), {why: tuple(some) for why, some in self._examples.items()})

    @property
    def unclear(self) -> UnclearOwnership:
        return UnclearOwnership(dict(sorted(self._pages.items())), dict(sorted(self._tenants.items())))

    def add_dropped(self, reason: str, row: SharedRow) -> None:
        self._dropped[reason] = self._dropped.get(reason, 0) + 1
        some = self._examples.setdefault(reason, [])
        name = row.page if row.tenant is None else f"{row.tenant}: {row.page}"
        if len(some) < MAX_EXAMPLES and name not in some:
            some.append(name)

    def add_unclear(self, row: SharedRow, wikis: tuple[str, ...]) -> None:
        if row.tenant is None:
            self._pages[row.page] = wikis
        else:
            self._tenants[row.tenant] = self._tenants.get(row.tenant, 0) + 1


def read_shared_index(
    shared_index: SharedIndex, resolver: OwnershipResolver, dimensions: int, spool: VectorSpool
) -> ReadSummary:
    """Put every row that has an owner into the spool, and say what became of the others."""
    reading = ReadSummary()
    with closing(shared_index.iter_rows()) as rows:
        while some := list(islice(rows, _BATCH_ROWS)):
            spool.add(_iter_owned_rows(some, resolver, dimensions, reading))
    return reading


def _iter_owned_rows(
    rows: list[SharedRow], resolver: OwnershipResolver, dimensions: int, summary: ReadSummary
) -> Iterator[tuple[str, bytes, str, FloatArray]]:
    for row in rows:
        summary.rows += 1
        verdict = resolver.resolve(row.tenant, row.page)
        if verdict.outcome in (RowOutcome.SEVERAL_WIKIS, RowOutcome.UNKNOWN_TENANT):
            summary.add_unclear(row, verdict.wikis)
        elif verdict.outcome is not RowOutcome.OWNED:
            summary.add_dropped(str(verdict.outcome), row)
        elif (fault := _find_vector_fault(row.vector, dimensions)) is not None:
            summary.add_dropped(fault, row)
        else:
            slug = verdict.wikis[0]
            summary.rows_by_wiki[slug] = summary.rows_by_wiki.get(slug, 0) + 1
            yield slug, hash_text(row.text), row.model, row.vector


def _find_vector_fault(vector: FloatArray, dimensions: int) -> str | None:
    if vector.shape != (dimensions,):
        return _WRONG_DIMENSIONS
    norm = float(np.linalg.norm(vector))
    return None if abs(norm - 1) < 1e-3 else _UNUSABLE_VECTOR
