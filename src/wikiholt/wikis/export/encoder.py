"""A static encoder of one wiki: a small vector for each of its terms, fitted to the vectors of its passages.

The vectors of the wiki's own model are reduced to a few dimensions, and neighbouring passages of a long page are
merged. The terms get the vectors whose weighted sums come closest to the passages that contain them (ridge regression),
so the sum over the terms of a query is near the passages that answer it. docs/adr/0057 says what was measured.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray, IntArray

DIMENSIONS = 96
MEAN_PARTS, MIN_PARTS_LIMIT = 3, 3_000
"""A wiki has at most this many vectors per page on average, or this many if that is more: all of them are loaded."""
SCALE = CosineScale(0.0, 2.0)
"""What the cosines of the encoder mean to the ranking, which is fitted to those of models."""

_MIN_TERM_PARTS = 2
_PENALTY = 0.3
_STEPS = 25
_BLOCK_VALUES = 200_000
_LEVELS = 7
"""Numbers are -7 to 7: two of them make a byte."""
_CLIPPED = 0.995


class SparseRows(NamedTuple):
    """A sparse matrix: the row, column and value of each number."""

    rows: IntArray
    columns: IntArray
    values: FloatArray
    shape: tuple[int, int]

    def sort(self) -> "SparseRows":
        order = np.lexsort((self.columns, self.rows))
        return SparseRows(self.rows[order], self.columns[order], self.values[order], self.shape)

    def transpose(self) -> "SparseRows":
        return SparseRows(self.columns, self.rows, self.values, self.shape[::-1]).sort()

    def multiply(self, dense: FloatArray) -> FloatArray:
        """The product with a dense matrix; the rows must be sorted."""
        product = np.zeros((self.shape[0], dense.shape[1]), np.float32)
        starts = np.append(np.flatnonzero(np.diff(self.rows, prepend=-1)), len(self.rows))
        first = 0
        while first < len(starts) - 1:
            last = max(first + 1, int(np.searchsorted(starts, starts[first] + _BLOCK_VALUES, "right")) - 1)
            begin, end = starts[first], starts[last]
            values = dense[self.columns[begin:end]] * self.values[begin:end, None]
            product[self.rows[starts[first:last]]] = np.add.reduceat(values, starts[first:last] - begin, axis=0)
            first = last
        return product


class StaticEncoder(NamedTuple):
    """The vectors of the parts of pages, and of the terms, in 4 bits per number."""

    part_pages: IntArray
    """The page of each part, in order."""
    parts: FloatArray
    """Whole numbers; the length of a row means nothing."""
    terms: FloatArray
    term_scales: FloatArray
    """What the numbers of a term are multiplied by; 0 for a term of a single part, which needs no vector."""


def assign_parts(pages: Sequence[int]) -> tuple[IntArray, IntArray]:
    """The part that each passage belongs to, and the page of each part. The passages of a page are next to each other.
    Pages have at most the same number of parts, which are equally long."""
    owners = np.asarray(pages, np.int64)
    starts = np.flatnonzero(np.diff(owners, prepend=-1))
    counts = np.diff(np.append(starts, len(owners)))
    limit = max(MIN_PARTS_LIMIT, MEAN_PARTS * len(counts))
    most = 1
    while most < counts.max() and np.minimum(counts, most + 1).sum() <= limit:
        most += 1
    part_counts = np.minimum(counts, most)
    numbers = np.arange(len(owners)) - np.repeat(starts, counts)
    offsets = np.cumsum(part_counts) - part_counts
    parts = np.repeat(offsets, counts) + numbers * np.repeat(part_counts, counts) // np.repeat(counts, counts)
    return parts, np.repeat(owners[starts], part_counts)


def build_encoder(
    vectors: FloatArray, pages: Sequence[int], term_counts: Sequence[dict[int, int]], term_count: int
) -> StaticEncoder:
    """The encoder of passages in the order of their pages, with the number of times each has each term."""
    part_of, part_pages = assign_parts(pages)
    targets = _reduce(_add_up(np.asarray(vectors, np.float64), part_of, len(part_pages)))
    matrix = _weigh_terms(part_of, term_counts, (len(part_pages), term_count))
    terms = _fit_terms(matrix, targets) * _compute_rarity(matrix)[:, None]
    scales = np.maximum(np.abs(terms).max(axis=1, initial=0.0) / _LEVELS, 1e-9)
    numbers = _round(terms / scales[:, None])
    scales[np.bincount(matrix.columns, minlength=term_count) < _MIN_TERM_PARTS] = 0.0
    limit = float(np.quantile(np.abs(targets), _CLIPPED)) or 1.0
    return StaticEncoder(part_pages, _round(targets / limit * _LEVELS), numbers, scales.astype(np.float32))


def _round(values: FloatArray) -> FloatArray:
    return np.clip(np.round(values), -_LEVELS, _LEVELS).astype(np.float32)


def _add_up(vectors: FloatArray, part_of: IntArray, count: int) -> FloatArray:
    """The direction of each part: the sum of its passages, without what all passages have in common."""
    sums = np.zeros((count, vectors.shape[1]), vectors.dtype)
    np.add.at(sums, part_of, vectors - vectors.mean(axis=0))
    return _normalize(sums)


def _reduce(vectors: FloatArray) -> FloatArray:
    """The vectors in their own main directions. Signs are fixed, so that the same vectors give the same result."""
    _, directions = np.linalg.eigh(vectors.T @ vectors)
    kept = directions[:, ::-1][:, :DIMENSIONS]
    largest = np.abs(kept).argmax(axis=0)
    kept *= np.sign(kept[largest, np.arange(kept.shape[1])])
    reduced = np.zeros((len(vectors), DIMENSIONS), np.float32)
    reduced[:, : kept.shape[1]] = _normalize(vectors @ kept)
    return reduced


def _normalize(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9))


def _weigh_terms(part_of: IntArray, term_counts: Sequence[dict[int, int]], shape: tuple[int, int]) -> SparseRows:
    """The logarithmic count of each term in each part."""
    rows = np.repeat(part_of, [len(counts) for counts in term_counts])
    columns = np.fromiter((term for counts in term_counts for term in counts), np.int64)
    values = np.fromiter((count for counts in term_counts for count in counts.values()), np.float64)
    keys, places = np.unique(rows * shape[1] + columns, return_inverse=True)
    counts = np.bincount(places, values, len(keys))
    return SparseRows(keys // shape[1], keys % shape[1], (1 + np.log(counts)).astype(np.float32), shape)


def _compute_rarity(matrix: SparseRows) -> FloatArray:
    counts = np.bincount(matrix.columns, minlength=matrix.shape[1])
    return np.log((matrix.shape[0] + 1) / (counts + 0.5)).astype(np.float32)


def _fit_terms(matrix: SparseRows, targets: FloatArray) -> FloatArray:
    """The vectors of the terms, by conjugate gradients in the space of the parts."""
    weighted = matrix.values * _compute_rarity(matrix)[matrix.columns]
    lengths = np.sqrt(np.bincount(matrix.rows, weighted * weighted, matrix.shape[0]))
    values = (weighted / np.maximum(lengths[matrix.rows], 1e-9)).astype(np.float32)
    forward = matrix._replace(values=values)
    backward = forward.transpose()
    solution, residual = np.zeros_like(targets), targets.copy()
    direction, size = residual.copy(), (residual * residual).sum(axis=0)
    for _ in range(_STEPS):
        step = forward.multiply(backward.multiply(direction)) + _PENALTY * direction
        factor = size / np.maximum((direction * step).sum(axis=0), 1e-12)
        solution += factor * direction
        residual -= factor * step
        previous, size = size, (residual * residual).sum(axis=0)
        direction = residual + size / np.maximum(previous, 1e-12) * direction
    return backward.multiply(solution)
