"""Rows of a vector cache, and the means of the rows of pages."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.cache_file import CacheBroken
from wikiholt.domain.index import FloatArray, IntArray, VectorRows
from wikiholt.search.vector_channel import compute_page_means

UNIT_LENGTH_TOLERANCE = 1e-3
_BLOCK_PAGES = 512


def check_unit_length(vectors: FloatArray, ids: IntArray, owner: str = "chunk") -> None:
    """Raise CacheBroken unless every row is finite and has length one: a damaged row must not give a wrong result."""
    squares = np.vecdot(vectors, vectors)
    wrong = ~(np.abs(squares - 1.0) <= 2 * UNIT_LENGTH_TOLERANCE)
    if wrong.any():
        first = int(ids[np.flatnonzero(wrong)[0]])
        raise CacheBroken(
            f"The vector of {owner} {first} is not of length one ({int(wrong.sum())} such rows).",
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

    def iter_means(self) -> Iterator["MeanTable"]:
        """Yield the means of all pages, in blocks."""
        all_page_ids = np.unique(self.page_ids)
        for start in range(0, len(all_page_ids), _BLOCK_PAGES):
            page_ids = all_page_ids[start : start + _BLOCK_PAGES]
            positions = self.find_page_positions(page_ids)
            rows = VectorRows(self.chunk_ids[positions], self.page_ids[positions], self.vectors[positions])
            means = compute_page_means(rows, page_ids)
            # Half of the tolerance of a check, which must not reject what passes here.
            has_direction = np.abs(np.vecdot(means, means) - 1.0) <= UNIT_LENGTH_TOLERANCE
            yield MeanTable(page_ids[has_direction], means[has_direction])


@dataclass(frozen=True, slots=True)
class MeanTable:
    """Pages (sorted ids), each with the mean of its rows as a unit vector. A mean without a direction is left out."""

    page_ids: IntArray
    vectors: FloatArray

    def read(self, page_ids: IntArray) -> tuple[IntArray, FloatArray]:
        """Return which of these pages are in the table, as positions, and their means.

        Raises CacheBroken if one is damaged.
        """
        rows = np.searchsorted(self.page_ids, page_ids)
        known = np.flatnonzero(rows < len(self.page_ids))
        known = known[self.page_ids[rows[known]] == page_ids[known]]
        vectors = self.vectors[rows[known]]
        check_unit_length(vectors, page_ids[known], "page")
        return known, vectors


def is_in_sorted(sorted_values: IntArray, values: IntArray) -> NDArray[np.bool_]:
    """Return for each value whether it is among `sorted_values`."""
    if not len(sorted_values):
        return np.zeros(len(values), np.bool_)
    positions = np.minimum(np.searchsorted(sorted_values, values), len(sorted_values) - 1)
    matches: NDArray[np.bool_] = sorted_values[positions] == values
    return matches
