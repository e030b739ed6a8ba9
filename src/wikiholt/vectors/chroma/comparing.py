"""A collection compared with the truth: its count, its ids, and whether rows find their neighbours; and mended."""

import logging
from collections.abc import Iterable

import numpy as np

from wikiholt.model import FloatArray, IntArray, VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import ChromaRow, CollectionRows
from wikiholt.vectors.chroma.faults import ChromaError, CollectionBusy
from wikiholt.vectors.chroma.figures import ChromaMetrics
from wikiholt.vectors.chroma.filling import DELETE_BATCH_ROWS, CollectionWriter, ShouldStop, iter_slices
from wikiholt.vectors.chroma.layout import RecordLayout
from wikiholt.vectors.exact import ExactVectorCache

_LOG = logging.getLogger(__name__)

VERIFY_SAMPLE_ROWS, VERIFY_NEIGHBOURS, MIN_RECALL, MIN_SELF_RECALL = 100, 10, 0.95, 0.99
"""So many rows are looked for, and so many neighbours of each; so many of these must be found, and of the rows."""

EXTRA_NEIGHBOURS = 20
"""So many more are asked for than are needed: Chroma may miss some, and some are gone since."""


class CollectionVerifier:
    """Knows one index, and how its chunks lie in a collection."""

    def __init__(self, index: WikiIndex, exact: ExactVectorCache, layout: RecordLayout, metrics: ChromaMetrics, writer: CollectionWriter) -> None:
        self._index = index
        self._exact = exact
        self._layout = layout
        self._metrics = metrics
        self._writer = writer

    def verify(self, collection: CollectionRows, version: int, should_stop: ShouldStop, *, can_write: bool) -> None:
        """Compare count, ids and a sample of nearest neighbours with the truth; differing rows are mended."""
        self._metrics.add("checks")
        if self.repair(collection, should_stop, version=version, can_write=can_write):
            self._metrics.add("repairs")
        self._exact.refresh()
        sample = self._exact.sample(VERIFY_SAMPLE_ROWS)
        if not len(sample.chunk_ids):
            return
        near: list[IntArray] = []
        for part in iter_slices(len(sample.chunk_ids), 20, should_stop):
            marked = self._layout.uses_metadata
            found = collection.search(sample.vectors[part], VERIFY_NEIGHBOURS + EXTRA_NEIGHBOURS, with_metadata=marked)
            near += [self.to_chunk_ids(rows) for rows in found.rows]
        self._exact.refresh()
        since = self._index.get_vector_changes(version)
        if since is None:
            raise CollectionBusy("The index has moved on far meanwhile.")
        judged = [self._measure_recall(*each, since.added.chunk_ids) for each in zip(sample.vectors, near, strict=True)]
        share, themselves = np.mean(judged, axis=0)
        if share >= MIN_RECALL and themselves >= MIN_SELF_RECALL:
            return
        if self._index.get_version() != since.version:
            raise CollectionBusy("The index has moved on meanwhile.")
        raise ChromaError(f"It finds {share:.0%} of the neighbours and {themselves:.0%} of the rows that are there.")

    def _measure_recall(self, vector: FloatArray, near: IntArray, new_chunk_ids: IntArray) -> tuple[float, bool]:
        """Which share of the nearest was found, and whether the row itself; rows at the same distance count alike.

        What came since is not Chroma's to find.
        """
        expected = self._exact.search(vector, VERIFY_NEIGHBOURS, None)
        found = self._exact.score_chunks(vector, np.union1d(near, new_chunk_ids), VERIFY_NEIGHBOURS)
        if not len(expected.distances):
            return 1.0, True
        share = float((found.distances <= expected.distances[-1] + 1e-5).sum()) / len(expected.distances)
        there = expected.distances[0] <= 1e-3
        return share, not there or (bool(len(found.distances)) and bool(found.distances[0] <= 1e-3))

    def to_chunk_ids(self, rows: Iterable[ChromaRow]) -> IntArray:
        """The chunks these rows are; raises ChromaRefused where one is none of ours."""
        chunks = [self._layout.get_chunk_id(row) for row in rows]
        if None in chunks:
            raise ChromaError("A collection holds rows that Wikiholt did not write.")
        return np.array(chunks, np.int64)

    def repair(
        self,
        collection: CollectionRows,
        should_stop: ShouldStop,
        *,
        version: int | None = None,
        can_write: bool = True,
    ) -> bool:
        """Write rows that are missing and remove those that are not the truth's; whether there were any.

        With a version, chunks that changed since it are left to whoever follows.
        """
        layout = self._layout
        there = list(collection.iter_rows(with_metadata=layout.uses_metadata))
        if collection.count() != len(there):
            wrong = ChromaError("Its count and its ids differ.")
            raise wrong if can_write else CollectionBusy(wrong.message)
        chunks = np.array([-1 if (c := layout.get_chunk_id(row)) is None else c for row in there], np.int64)
        since = self._index.get_vector_changes(version) if version is not None else None
        lacking: list[VectorRows] = []
        true: list[IntArray] = []
        with self._index.open_vector_snapshot() as snapshot:
            for block in snapshot.iter_blocks():
                keep = ~np.isin(block.chunk_ids, chunks)
                if since is not None:
                    keep &= ~np.isin(block.chunk_ids, since.added.chunk_ids)
                lacking.append(VectorRows(block.chunk_ids[keep], block.page_ids[keep], block.vectors[keep]))
                true.append(block.chunk_ids)
        allowed = np.concatenate([np.empty(0, np.int64), *true, *([since.dropped] if since is not None else [])])
        strangers = [row.id for row, strange in zip(there, ~np.isin(chunks, allowed), strict=True) if strange]
        missing = sum(len(rows.chunk_ids) for rows in lacking)
        if not can_write or not (missing or strangers):
            if missing or strangers:
                raise CollectionBusy("A collection differs from the index; the process that writes it is to mend it.")
            return False
        _LOG.warning("a collection of Chroma's lacked %d rows and had %d too many: mended", missing, len(strangers))
        for rows in lacking:
            self._writer.upsert(collection, rows, should_stop)
        for part in iter_slices(len(strangers), DELETE_BATCH_ROWS, should_stop):
            collection.delete({"ids": strangers[part]})
        self._metrics.add("rows_removed", len(strangers))
        return True
