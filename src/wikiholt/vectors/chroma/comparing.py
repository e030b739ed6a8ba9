"""A collection compared with the truth: its count, its ids, and whether rows find their neighbours; and mended."""

import logging
from collections.abc import Iterable

import numpy as np

from wikiholt.model import Floats, Ints, VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.chroma.api import Row, Rows
from wikiholt.vectors.chroma.faults import ChromaRefused, OthersAtWork
from wikiholt.vectors.chroma.figures import Figures
from wikiholt.vectors.chroma.filling import REMOVED_AT_ONCE, Filling, Stop, parts
from wikiholt.vectors.chroma.layout import Layout
from wikiholt.vectors.exact import ExactCache

_LOG = logging.getLogger(__name__)

SAMPLE, DEPTH, RECALL, THEMSELVES = 100, 10, 0.95, 0.99
"""So many rows are looked for, and so many neighbours of each; so many of these must be found, and of the rows."""

SLACK = 20
"""So many more are asked for than are needed: Chroma may miss some, and some are gone since."""


class Comparing:
    """Knows one index, and how its chunks lie in a collection."""

    def __init__(self, index: WikiIndex, exact: ExactCache, layout: Layout, figures: Figures, filling: Filling) -> None:
        self._index = index
        self._exact = exact
        self._layout = layout
        self._figures = figures
        self._filling = filling

    def prove(self, held: Rows, version: int, stop: Stop, *, writes: bool) -> None:
        """Compare count, ids and a sample of nearest neighbours with the truth; differing rows are mended."""
        self._figures.add("checks")
        if self.mend(held, stop, version=version, writes=writes):
            self._figures.add("repairs")
        self._exact.refresh()
        sample = self._exact.sample(SAMPLE)
        if not len(sample.chunk_ids):
            return
        near: list[Ints] = []
        for part in parts(len(sample.chunk_ids), 20, stop):
            marked = self._layout.with_marks
            found = held.nearest(sample.vectors[part], DEPTH + SLACK, with_marks=marked)
            near += [self.chunks(rows) for rows in found.rows]
        self._exact.refresh()
        since = self._index.changes_since(version)
        if since is None:
            raise OthersAtWork("The index has moved on far meanwhile.")
        judged = [self._judged(*each, since.added.chunk_ids) for each in zip(sample.vectors, near, strict=True)]
        share, themselves = np.mean(judged, axis=0)
        if share >= RECALL and themselves >= THEMSELVES:
            return
        if self._index.version() != since.version:
            raise OthersAtWork("The index has moved on meanwhile.")
        raise ChromaRefused(f"It finds {share:.0%} of the neighbours and {themselves:.0%} of the rows that are there.")

    def _judged(self, vector: Floats, near: Ints, since: Ints) -> tuple[float, bool]:
        """Which share of the nearest was found, and whether the row itself; rows at the same distance count alike.

        What came since is not Chroma's to find.
        """
        expected = self._exact.search(vector, DEPTH, None)
        found = self._exact.scored(vector, np.union1d(near, since), DEPTH)
        if not len(expected.distances):
            return 1.0, True
        share = float((found.distances <= expected.distances[-1] + 1e-5).sum()) / len(expected.distances)
        there = expected.distances[0] <= 1e-3
        return share, not there or (bool(len(found.distances)) and bool(found.distances[0] <= 1e-3))

    def chunks(self, rows: Iterable[Row]) -> Ints:
        """The chunks these rows are; raises ChromaRefused where one is none of ours."""
        chunks = [self._layout.chunk(row) for row in rows]
        if None in chunks:
            raise ChromaRefused("A collection holds rows that Wikiholt did not write.")
        return np.array(chunks, np.int64)

    def mend(
        self,
        held: Rows,
        stop: Stop,
        *,
        version: int | None = None,
        writes: bool = True,
    ) -> bool:
        """Write rows that are missing and remove those that are not the truth's; whether there were any.

        With a version, chunks that changed since it are left to whoever follows.
        """
        layout = self._layout
        there = list(held.all(with_marks=layout.with_marks))
        if held.count() != len(there):
            wrong = ChromaRefused("Its count and its ids differ.")
            raise wrong if writes else OthersAtWork(wrong.message)
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
        strangers = [row.id for row, strange in zip(there, ~np.isin(chunks, allowed), strict=True) if strange]
        missing = sum(len(rows.chunk_ids) for rows in lacking)
        if not writes or not (missing or strangers):
            if missing or strangers:
                raise OthersAtWork("A collection differs from the index; the process that writes it is to mend it.")
            return False
        _LOG.warning("a collection of Chroma's lacked %d rows and had %d too many: mended", missing, len(strangers))
        for rows in lacking:
            self._filling.put(held, rows, stop)
        for part in parts(len(strangers), REMOVED_AT_ONCE, stop):
            held.take_out({"ids": strangers[part]})
        self._figures.add("rows_removed", len(strangers))
        return True
