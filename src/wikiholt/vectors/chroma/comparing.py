"""A collection compared with the truth: its count, its ids, and whether rows find their neighbours; and mended."""

import logging
from collections.abc import Iterable

import numpy as np

from wikiholt.model import Floats, Ints, VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import Api, Row
from wikiholt.vectors.chroma.faults import ChromaRefused, OthersAtWork
from wikiholt.vectors.chroma.figures import Figures
from wikiholt.vectors.chroma.filling import REMOVED_AT_ONCE, Filling, Stop, parts
from wikiholt.vectors.chroma.layout import Layout
from wikiholt.vectors.exact import ExactCache

_LOG = logging.getLogger(__name__)

SAMPLE, DEPTH, RECALL = 48, 10, 0.95
"""So many rows are looked for, so many neighbours of each compared, and so many of these must be found."""


class Comparing:
    """Knows one index, and how its chunks lie in a collection."""

    def __init__(self, index: WikiIndex, exact: ExactCache, layout: Layout, figures: Figures, filling: Filling) -> None:
        self._index = index
        self._exact = exact
        self._layout = layout
        self._figures = figures
        self._filling = filling

    def prove(self, api: Api, collection_id: str, version: int, stop: Stop, *, writes: bool) -> None:
        """Compare count, ids and a sample of nearest neighbours with the truth; differing rows are mended."""
        self._figures.add("checks")
        api.count(collection_id)
        if self.mend(api, collection_id, stop, version=version, writes=writes):
            self._figures.add("repairs")
        self._exact.refresh()
        sample = self._exact.sample(SAMPLE)
        if not len(sample.chunk_ids):
            return
        shares = []
        for part in parts(len(sample.chunk_ids), 16, stop):
            vectors = sample.vectors[part]
            near = api.nearest(collection_id, vectors, DEPTH, with_marks=self._layout.with_marks)
            shares += [self._share(v, rows) for v, rows in zip(vectors, near.rows, strict=True)]
        if np.mean(shares) < RECALL:
            raise ChromaRefused(f"It finds {np.mean(shares):.0%} of the neighbours that are there.")

    def _share(self, vector: Floats, rows: Iterable[Row]) -> float:
        """Which share of the nearest was found; rows at the same distance count alike."""
        expected = self._exact.search(vector, DEPTH, None)
        found = self._exact.scored(vector, self.chunks(rows), DEPTH)
        reach = expected.distances[-1] + 1e-5
        return float((found.distances <= reach).sum()) / len(expected.distances)

    def chunks(self, rows: Iterable[Row]) -> Ints:
        """The chunks these rows are; raises ChromaRefused where one is none of ours."""
        chunks = [self._layout.chunk(row) for row in rows]
        if None in chunks:
            raise ChromaRefused("A collection holds rows that Wikiholt did not write.")
        return np.array(chunks, np.int64)

    def mend(
        self,
        api: Api,
        collection_id: str,
        stop: Stop,
        *,
        version: int | None = None,
        writes: bool = True,
    ) -> bool:
        """Write rows that are missing and remove those that are not the truth's; whether there were any.

        With a version, chunks that changed since it are left to whoever follows.
        """
        layout = self._layout
        there = list(api.rows(collection_id, with_marks=layout.with_marks))
        chunks = np.array([-1 if (c := layout.chunk(row)) is None else c for row in there], np.int64)
        since = self._index.changes_since(version) if version is not None else None
        lacking: list[VectorRows] = []
        true: list[Ints] = []
        with self._index.snapshot() as snapshot:
            for block in snapshot.blocks():
                keep = ~np.isin(block.chunk_ids, chunks)
                if since is not None:
                    keep &= ~np.isin(block.chunk_ids, since.added.chunk_ids)
                lacking.append(VectorRows(block.chunk_ids[keep], block.page_ids[keep], block.vectors[keep]))
                true.append(block.chunk_ids)
        allowed = np.concatenate([np.empty(0, np.int64), *true, *([since.dropped] if since is not None else [])])
        wrong = [row.id for row, strange in zip(there, ~np.isin(chunks, allowed), strict=True) if strange]
        missing = sum(len(rows.chunk_ids) for rows in lacking)
        if not writes or not (missing or wrong):
            if missing or wrong:
                raise OthersAtWork("A collection differs from the index; the process that writes it is to mend it.")
            return False
        _LOG.warning("a collection of Chroma's lacked %d rows and had %d too many: mended", missing, len(wrong))
        for rows in lacking:
            self._filling.put(api, collection_id, rows, stop)
        for part in parts(len(wrong), REMOVED_AT_ONCE, stop):
            api.take_out(collection_id, {"ids": wrong[part]})
        self._figures.add("rows_removed", len(wrong))
        return True
