"""From the rows of a shared index to vectors by wiki; what belongs to nobody is counted, with examples."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from wikiholt.importing.owners import RowOutcome, OwnershipResolver
from wikiholt.importing.report import MAX_EXAMPLES, DroppedRows, UnclearOwnership
from wikiholt.importing.shared import SharedIndex, SharedRow
from wikiholt.importing.spool import VectorSpool
from wikiholt.model import FloatArray
from wikiholt.pages import hash_text

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


def read_shared_index(shared_index: SharedIndex, resolver: OwnershipResolver, dimensions: int, spool: VectorSpool) -> ReadSummary:
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
