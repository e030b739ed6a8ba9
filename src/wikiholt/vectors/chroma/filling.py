"""Rows go into a collection and out of it, some at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from wikiholt.cachefile.worker import Cancelled
from wikiholt.model import IntArray, VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import CollectionRows
from wikiholt.vectors.chroma.figures import ChromaMetrics
from wikiholt.vectors.chroma.layout import RecordLayout

UPSERT_BATCH_ROWS = 100
"""Rows in one request: while Chroma writes them, searches wait."""
DELETE_BATCH_ROWS = 1000

ShouldStop = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class CollectionWriter:
    """Writes the rows of one index in one layout; each may be written twice."""

    index: WikiIndex
    layout: RecordLayout
    metrics: ChromaMetrics

    def upsert(self, collection: CollectionRows, rows: VectorRows, should_stop: ShouldStop) -> None:
        for part in iter_slices(len(rows.chunk_ids), UPSERT_BATCH_ROWS, should_stop):
            some = VectorRows(rows.chunk_ids[part], rows.page_ids[part], rows.vectors[part])
            records = self.layout.to_records(self.index, some)
            if records.ids:
                collection.upsert(records.ids, records.vectors, records.metadata, records.texts)
                self.metrics.add("rows_written", len(records.ids))

    def delete(self, collection: CollectionRows, chunk_ids: IntArray, should_stop: ShouldStop) -> None:
        for part in iter_slices(len(chunk_ids), DELETE_BATCH_ROWS, should_stop):
            collection.delete(self.layout.build_selector(chunk_ids[part]))
        self.metrics.add("rows_removed", len(chunk_ids))


def iter_slices(count: int, size: int, should_stop: ShouldStop) -> Iterator[slice]:
    """Ranges of so many, until told to stop."""
    for start in range(0, count, size):
        if should_stop():
            raise Cancelled
        yield slice(start, start + size)
