"""Rows that came after a cache was built: kept in memory, appended in place, searched whole."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wikiholt.model import Floats, Ints, VectorRows
from wikiholt.vectors.rows import NO_ROWS


class _Buffer:
    """Arrays that grow by doubling. What was written stays, so an older view of it stays right."""

    def __init__(self, dimensions: int, room: int = 64) -> None:
        self.used = 0
        self.chunk_ids: Ints = np.empty(room, np.int64)
        self.page_ids: Ints = np.empty(room, np.int64)
        self.vectors: Floats = np.empty((room, dimensions), np.float32)

    def with_room(self, count: int, more: int) -> "_Buffer":
        """A buffer that holds the first `count` rows and has room for more: this one, if nobody wrote past them."""
        if self.used == count and count + more <= len(self.chunk_ids):
            return self
        grown = _Buffer(self.vectors.shape[1], max(64, 2 * (count + more)))
        grown.append(VectorRows(self.chunk_ids[:count], self.page_ids[:count], self.vectors[:count]))
        return grown

    def append(self, rows: VectorRows) -> None:
        end = self.used + len(rows.chunk_ids)
        self.chunk_ids[self.used : end] = rows.chunk_ids
        self.page_ids[self.used : end] = rows.page_ids
        self.vectors[self.used : end] = rows.vectors
        self.used = end


@dataclass(frozen=True, slots=True)
class Added:
    """Rows added since; `gone` are the positions of those dropped again. Never changes; `with_change` makes another."""

    buffer: _Buffer
    count: int = 0
    gone: Ints = field(default_factory=lambda: NO_ROWS)

    @classmethod
    def none(cls, dimensions: int) -> "Added":
        return cls(_Buffer(dimensions))

    def __len__(self) -> int:
        return self.count - len(self.gone)

    @property
    def chunk_ids(self) -> Ints:
        return self.buffer.chunk_ids[: self.count]

    @property
    def page_ids(self) -> Ints:
        return self.buffer.page_ids[: self.count]

    @property
    def vectors(self) -> Floats:
        return self.buffer.vectors[: self.count]

    def with_change(self, rows: VectorRows, dropped: Ints) -> "Added":
        """Without the dropped chunks, and with these rows after them."""
        gone = np.union1d(self.gone, np.flatnonzero(np.isin(self.chunk_ids, dropped)))
        buffer = self.buffer.with_room(self.count, len(rows.chunk_ids))
        buffer.append(rows)
        return Added(buffer, self.count + len(rows.chunk_ids), gone)

    def scores(self, vector: Floats, pages: Ints | None) -> Floats:
        """The cosine of every row; -inf for rows dropped again and rows of other pages."""
        scores: Floats = np.vecdot(self.vectors, vector)
        scores[self.gone] = -np.inf
        if pages is not None:
            scores[~contains(pages, self.page_ids)] = -np.inf
        return scores

    def rows(self) -> VectorRows:
        """The rows that were not dropped again."""
        keep = np.ones(self.count, np.bool_)
        keep[self.gone] = False
        return VectorRows(self.chunk_ids[keep], self.page_ids[keep], self.vectors[keep])


def contains(ordered: Ints, values: Ints) -> NDArray[np.bool_]:
    """For each value whether it is among the ordered ones."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[places] == values
    return found
