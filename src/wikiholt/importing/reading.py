"""From the rows of a shared index to vectors by wiki; what belongs to nobody is counted, with examples."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from wikiholt.importing.owners import Fate, Owners
from wikiholt.importing.report import EXAMPLES, Dropped, Unclear
from wikiholt.importing.shared import Shared, SharedRow
from wikiholt.importing.spool import Spool
from wikiholt.model import Floats
from wikiholt.pages import text_hash

_AT_ONCE = 1000
_OTHER_SIZE = "wrong-dimensions"
_NO_VECTOR = "unusable-vector"


@dataclass(slots=True)
class Reading:
    """What was read."""

    rows: int = 0
    of_wiki: dict[str, int] = field(default_factory=dict)
    _dropped: dict[str, int] = field(default_factory=dict)
    _examples: dict[str, list[str]] = field(default_factory=dict)
    _pages: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _tenants: dict[str, int] = field(default_factory=dict)

    @property
    def dropped(self) -> Dropped:
        return Dropped(dict(self._dropped), {why: tuple(some) for why, some in self._examples.items()})

    @property
    def unclear(self) -> Unclear:
        return Unclear(dict(sorted(self._pages.items())), dict(sorted(self._tenants.items())))

    def drop(self, why: str, row: SharedRow) -> None:
        self._dropped[why] = self._dropped.get(why, 0) + 1
        some = self._examples.setdefault(why, [])
        name = row.page if row.tenant is None else f"{row.tenant}: {row.page}"
        if len(some) < EXAMPLES and name not in some:
            some.append(name)

    def unsettled(self, row: SharedRow, wikis: tuple[str, ...]) -> None:
        if row.tenant is None:
            self._pages[row.page] = wikis
        else:
            self._tenants[row.tenant] = self._tenants.get(row.tenant, 0) + 1


def read(shared: Shared, owners: Owners, dimensions: int, spool: Spool) -> Reading:
    """Put every row that has an owner into the spool, and say what became of the others."""
    reading = Reading()
    with closing(shared.rows()) as rows:
        while some := list(islice(rows, _AT_ONCE)):
            spool.add(_kept(some, owners, dimensions, reading))
    return reading


def _kept(
    rows: list[SharedRow], owners: Owners, dimensions: int, reading: Reading
) -> Iterator[tuple[str, bytes, str, Floats]]:
    for row in rows:
        reading.rows += 1
        verdict = owners.of(row.tenant, row.page)
        if verdict.fate in (Fate.SEVERAL_WIKIS, Fate.UNKNOWN_TENANT):
            reading.unsettled(row, verdict.wikis)
        elif verdict.fate is not Fate.OWNED:
            reading.drop(str(verdict.fate), row)
        elif (fault := _fault(row.vector, dimensions)) is not None:
            reading.drop(fault, row)
        else:
            slug = verdict.wikis[0]
            reading.of_wiki[slug] = reading.of_wiki.get(slug, 0) + 1
            yield slug, text_hash(row.text), row.model, row.vector


def _fault(vector: Floats, dimensions: int) -> str | None:
    if vector.shape != (dimensions,):
        return _OTHER_SIZE
    norm = float(np.linalg.norm(vector))
    return None if abs(norm - 1) < 1e-3 else _NO_VECTOR
