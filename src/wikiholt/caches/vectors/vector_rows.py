"""Rows of a vector cache (ids and unit vectors): those that were built, and those added since in memory.

Scores come from `numpy.vecdot`. It sums every row in the same order at any position, so equal vectors get equal scores
and ties are resolved by chunk id; and it starts no threads, which would compete with other searches.
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.cache_file import CacheBroken
from wikiholt.domain.index import FloatArray, IntArray, VectorRows

UNIT_LENGTH_TOLERANCE = 1e-3
NO_ROWS: IntArray = np.empty(0, np.int64)


def select_best(scores: FloatArray, count: int) -> IntArray:
    """Return the positions of the `count` highest scores and of all ties with the last. Scores of -inf are excluded."""
    if count >= len(scores):
        return np.flatnonzero(scores > -np.inf)
    if count <= 0:
        return NO_ROWS
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.flatnonzero(scores >= least) if least > -np.inf else np.flatnonzero(scores > -np.inf)


def check_unit_length(vectors: FloatArray, chunk_ids: IntArray) -> None:
    """Raise CacheBroken unless every row is finite and has length one: a damaged row must not give a wrong result."""
    squares = np.vecdot(vectors, vectors)
    wrong = ~(np.abs(squares - 1.0) <= 2 * UNIT_LENGTH_TOLERANCE)
    if wrong.any():
        first = int(chunk_ids[np.flatnonzero(wrong)[0]])
        raise CacheBroken(
            f"The vector of chunk {first} is not of length one ({int(wrong.sum())} such rows).",
            hint="the cache is rebuilt from the index; if this happens again, check the index",
        )


@dataclass(frozen=True)
class VectorTable:
    """Immutable rows."""

    chunk_ids: IntArray
    page_ids: IntArray
    vectors: FloatArray

    def __len__(self) -> int:
        return len(self.chunk_ids)

    def find_positions(self, chunk_ids: IntArray) -> IntArray:
        """Return the sorted positions of these chunks. Unknown ids are ignored."""
        order = self._chunk_order
        ordered = self.chunk_ids if order is None else self.chunk_ids[order]
        positions = np.searchsorted(ordered, chunk_ids)
        inside = positions < len(self)
        positions = positions[inside]
        positions = positions[ordered[positions] == chunk_ids[inside]]
        return np.unique(positions if order is None else order[positions])

    def find_page_positions(self, page_ids: IntArray) -> IntArray:
        """Return the positions of the chunks of these pages (sorted ids), in no particular order."""
        order = self._page_order
        ordered = self.page_ids if order is None else self._sorted_page_ids
        starts, ends = np.searchsorted(ordered, page_ids), np.searchsorted(ordered, page_ids, side="right")
        lengths = ends - starts
        before = np.cumsum(lengths) - lengths
        positions = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
        return positions if order is None else order[positions]

    def score_positions(self, vector: FloatArray, positions: IntArray) -> FloatArray:
        """Return the cosines of these rows. Raises CacheBroken if a row is damaged."""
        vectors = self.vectors[positions]
        check_unit_length(vectors, self.chunk_ids[positions])
        scores: FloatArray = np.vecdot(vectors, vector)
        return scores

    def score_all(self, vector: FloatArray) -> FloatArray:
        """Return the cosine of every row. Raises CacheBroken if one is not finite."""
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


class _RowBuffer:
    """Arrays that grow by doubling. Written rows never change, so older views stay valid."""

    def __init__(self, dimensions: int, capacity: int = 64) -> None:
        self.row_count = 0
        self.chunk_ids: IntArray = np.empty(capacity, np.int64)
        self.page_ids: IntArray = np.empty(capacity, np.int64)
        self.vectors: FloatArray = np.empty((capacity, dimensions), np.float32)

    def ensure_capacity(self, count: int, extra: int) -> "_RowBuffer":
        """Return a buffer with the first `count` rows and space for more: this one if no rows follow them yet."""
        if self.row_count == count and count + extra <= len(self.chunk_ids):
            return self
        grown = _RowBuffer(self.vectors.shape[1], max(64, 2 * (count + extra)))
        grown.append(VectorRows(self.chunk_ids[:count], self.page_ids[:count], self.vectors[:count]))
        return grown

    def append(self, rows: VectorRows) -> None:
        end = self.row_count + len(rows.chunk_ids)
        self.chunk_ids[self.row_count : end] = rows.chunk_ids
        self.page_ids[self.row_count : end] = rows.page_ids
        self.vectors[self.row_count : end] = rows.vectors
        self.row_count = end


@dataclass(frozen=True, slots=True)
class AppendedRows:
    """Rows added since the build, some of them dropped again. Immutable; `with_changes` returns another."""

    buffer: _RowBuffer
    count: int = 0
    dropped_positions: IntArray = field(default_factory=lambda: NO_ROWS)

    @classmethod
    def create_empty(cls, dimensions: int) -> "AppendedRows":
        return cls(_RowBuffer(dimensions))

    def __len__(self) -> int:
        return self.count - len(self.dropped_positions)

    @property
    def chunk_ids(self) -> IntArray:
        return self.buffer.chunk_ids[: self.count]

    @property
    def page_ids(self) -> IntArray:
        return self.buffer.page_ids[: self.count]

    @property
    def vectors(self) -> FloatArray:
        return self.buffer.vectors[: self.count]

    def with_changes(self, rows: VectorRows, dropped: IntArray) -> "AppendedRows":
        """Return a copy without the dropped chunks and with these rows appended."""
        dropped_positions = np.union1d(self.dropped_positions, np.flatnonzero(np.isin(self.chunk_ids, dropped)))
        buffer = self.buffer.ensure_capacity(self.count, len(rows.chunk_ids))
        buffer.append(rows)
        return AppendedRows(buffer, self.count + len(rows.chunk_ids), dropped_positions)

    def score(self, vector: FloatArray, page_ids: IntArray | None) -> FloatArray:
        """Return the cosine of every row; -inf for dropped rows and rows of other pages."""
        scores: FloatArray = np.vecdot(self.vectors, vector)
        scores[self.dropped_positions] = -np.inf
        if page_ids is not None:
            scores[~is_in_sorted(page_ids, self.page_ids)] = -np.inf
        return scores

    def get_live_rows(self) -> VectorRows:
        """Return the rows that were not dropped."""
        keep = np.ones(self.count, np.bool_)
        keep[self.dropped_positions] = False
        return VectorRows(self.chunk_ids[keep], self.page_ids[keep], self.vectors[keep])


def is_in_sorted(sorted_values: IntArray, values: IntArray) -> NDArray[np.bool_]:
    """Return for each value whether it is among `sorted_values`."""
    if not len(sorted_values):
        return np.zeros(len(values), np.bool_)
    positions = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    matches: NDArray[np.bool_] = sorted_values[positions] == values
    return matches
