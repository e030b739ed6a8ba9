"""The rows a cache was built from: ids and unit vectors, looked up by chunk, by page, and by nearness.

Scores come from `numpy.vecdot`: it adds up every row in the same order wherever the row lies, so equal vectors get
equal scores and ties are settled by chunk id; and it starts no threads, which would fight with other searches.
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


# Rows that came after a cache was built: kept in memory, appended in place, searched whole.


class _RowBuffer:
    """Arrays that grow by doubling. What was written stays, so an older view of it stays right."""

    def __init__(self, dimensions: int, capacity: int = 64) -> None:
        self.row_count = 0
        self.chunk_ids: IntArray = np.empty(capacity, np.int64)
        self.page_ids: IntArray = np.empty(capacity, np.int64)
        self.vectors: FloatArray = np.empty((capacity, dimensions), np.float32)

    def ensure_capacity(self, count: int, extra: int) -> "_RowBuffer":
        """A buffer that holds the first `count` rows and has room for more: this one, if nobody wrote past them."""
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
    """Rows added since; `gone` are the positions of those dropped again. Never changes; `with_change` makes another."""

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
        """Without the dropped chunks, and with these rows after them."""
        gone = np.union1d(self.dropped_positions, np.flatnonzero(np.isin(self.chunk_ids, dropped)))
        buffer = self.buffer.ensure_capacity(self.count, len(rows.chunk_ids))
        buffer.append(rows)
        return AppendedRows(buffer, self.count + len(rows.chunk_ids), gone)

    def score(self, vector: FloatArray, page_ids: IntArray | None) -> FloatArray:
        """The cosine of every row; -inf for rows dropped again and rows of other pages."""
        scores: FloatArray = np.vecdot(self.vectors, vector)
        scores[self.dropped_positions] = -np.inf
        if page_ids is not None:
            scores[~is_in_sorted(page_ids, self.page_ids)] = -np.inf
        return scores

    def get_live_rows(self) -> VectorRows:
        """The rows that were not dropped again."""
        keep = np.ones(self.count, np.bool_)
        keep[self.dropped_positions] = False
        return VectorRows(self.chunk_ids[keep], self.page_ids[keep], self.vectors[keep])


def is_in_sorted(sorted_values: IntArray, values: IntArray) -> NDArray[np.bool_]:
    """For each value whether it is among the ordered ones."""
    if not len(sorted_values):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    found: NDArray[np.bool_] = sorted_values[places] == values
    return found
