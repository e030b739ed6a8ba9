"""Rows go into a collection and out of it, some at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wikiholt.cachefile.worker import Abandoned
from wikiholt.model import Ints, VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import Rows
from wikiholt.vectors.chroma.figures import Figures
from wikiholt.vectors.chroma.layout import Layout

BATCH = 100
"""Rows in one request: while Chroma writes them, searches wait."""
REMOVED_AT_ONCE = 1000

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Filling:
    """Writes the rows of one index in one layout; each may be written twice."""

    index: WikiIndex
    layout: Layout
    figures: Figures

    def put(self, held: Rows, rows: VectorRows, stop: Stop) -> None:
        for part in parts(len(rows.chunk_ids), BATCH, stop):
            some = VectorRows(rows.chunk_ids[part], rows.page_ids[part], rows.vectors[part])
            records = self.layout.records(self.index, some)
            if records.ids:
                held.put(records.ids, records.vectors, records.marks, records.texts)
                self.figures.add("rows_written", len(records.ids))

    def take_out(self, held: Rows, chunk_ids: Ints, stop: Stop) -> None:
        for part in parts(len(chunk_ids), REMOVED_AT_ONCE, stop):
            held.take_out(self.layout.these(chunk_ids[part]))
        self.figures.add("rows_removed", len(chunk_ids))


def parts(count: int, size: int, stop: Stop) -> Iterator[slice]:
    """Ranges of so many, until told to stop."""
    for start in range(0, count, size):
        if stop():
            raise Abandoned
        yield slice(start, start + size)
