"""The rows a cache was built from: ids and unit vectors, looked up by chunk, by page, and by nearness.

Scores come from `numpy.vecdot`: it adds up every row in the same order wherever the row lies, so equal vectors get
equal scores and ties are settled by chunk id; and it starts no threads, which would fight with other searches.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wikiholt.cachefile.faults import CacheBroken
from wikiholt.model import FloatArray, IntArray

UNIT_LENGTH_TOLERANCE = 1e-3
NO_ROWS: IntArray = np.empty(0, np.int64)


def select_best(scores: FloatArray, count: int) -> IntArray:
    """The positions of the highest scores, with every score equal to the last of them; never one of -inf."""
    if count >= len(scores):
        return np.flatnonzero(scores > -np.inf)
    if count <= 0:
        return NO_ROWS
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.flatnonzero(scores >= least) if least > -np.inf else np.flatnonzero(scores > -np.inf)


def check_unit_length(vectors: FloatArray, chunk_ids: IntArray) -> None:
    """Raise unless every row is finite and of length one: a damaged row must not give a wrong answer."""
    squares = np.vecdot(vectors, vectors)
    wrong = ~(np.abs(squares - 1.0) <= 2 * UNIT_LENGTH_TOLERANCE)
    if wrong.any():
        first = int(chunk_ids[np.flatnonzero(wrong)[0]])
        raise CacheBroken(
            f"The vector of chunk {first} is not of length one ({int(wrong.sum())} such rows).",
            hint="the cache is rebuilt from the index; if this stays, check the index",
        )


@dataclass(frozen=True)
class VectorTable:
    """Rows that never change."""

    chunk_ids: IntArray
    page_ids: IntArray
    vectors: FloatArray

    def __len__(self) -> int:
        return len(self.chunk_ids)

    def find_positions(self, chunk_ids: IntArray) -> IntArray:
        """Where these chunks lie, sorted; chunks that are not here are left out."""
        order = self._chunk_order
        ordered = self.chunk_ids if order is None else self.chunk_ids[order]
        places = np.searchsorted(ordered, chunk_ids)
        inside = places < len(self)
        places = places[inside]
        places = places[ordered[places] == chunk_ids[inside]]
        return np.unique(places if order is None else order[places])

    def find_page_positions(self, page_ids: IntArray) -> IntArray:
        """Where the chunks of these pages (sorted ids) lie, in no particular order."""
        order = self._page_order
        ordered = self.page_ids if order is None else self._sorted_page_ids
        starts, ends = np.searchsorted(ordered, page_ids), np.searchsorted(ordered, page_ids, side="right")
        lengths = ends - starts
        before = np.cumsum(lengths) - lengths
        places = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
        return places if order is None else order[places]

    def score_positions(self, vector: FloatArray, positions: IntArray) -> FloatArray:
        """The cosines of these rows, each row checked before it is believed."""
        vectors = self.vectors[positions]
        check_unit_length(vectors, self.chunk_ids[positions])
        scores: FloatArray = np.vecdot(vectors, vector)
        return scores

    def score_all(self, vector: FloatArray) -> FloatArray:
        """The cosine of every row."""
        scores: FloatArray = np.vecdot(self.vectors, vector)
        if not np.isfinite(scores).all():
            raise CacheBroken("A vector of the cache is not finite.", hint="the cache is rebuilt from the index")
        return scores

    @cached_property
    def _chunk_order(self) -> IntArray | None:
        ascending = bool((self.chunk_ids[1:] > self.chunk_ids[:-1]).all())
        return None if ascending else np.argsort(self.chunk_ids, kind="stable")

    @cached_property
    def _page_order(self) -> IntArray | None:
        ascending = bool((self.page_ids[1:] >= self.page_ids[:-1]).all())
        return None if ascending else np.argsort(self.page_ids, kind="stable")

    @cached_property
    def _sorted_page_ids(self) -> IntArray:
        return self.page_ids if self._page_order is None else self.page_ids[self._page_order]
