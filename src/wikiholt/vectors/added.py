"""Rows that came after a cache was built: kept in memory, appended in place, searched whole."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wikiholt.model import FloatArray, IntArray, VectorRows
from wikiholt.vectors.rows import NO_ROWS


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
