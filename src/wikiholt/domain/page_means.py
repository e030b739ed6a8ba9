"""The mean of a page's passages, which says what the page as a whole is about. Pure functions."""

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, VectorRows

MAX_SAMPLED_CHUNKS = 16
"""Passages of a page whose mean is computed. A longer page is sampled evenly; more passages rank no better."""

_MIN_LENGTH = 1e-6


def sample_rows(page_ids: IntArray) -> IntArray:
    """The positions of the rows to use, of rows that are grouped by page and in the order of the page."""
    if not len(page_ids):
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.concatenate(([True], page_ids[1:] != page_ids[:-1])))
    counts = np.diff(starts, append=len(page_ids))
    steps = -(-counts // MAX_SAMPLED_CHUNKS)
    within_page = np.arange(len(page_ids)) - np.repeat(starts, counts)
    return np.flatnonzero(within_page % np.repeat(steps, counts) == 0)


def score_means(page_ids: IntArray, vectors: FloatArray, vector: FloatArray) -> dict[int, float]:
    """Page id → cosine of the vector and the mean of the page's rows, which are grouped by page."""
    if not len(page_ids):
        return {}
    starts = np.flatnonzero(np.concatenate(([True], page_ids[1:] != page_ids[:-1])))
    sums = np.add.reduceat(vectors, starts, axis=0)
    lengths = np.maximum(np.sqrt(np.vecdot(sums, sums)), _MIN_LENGTH)
    return dict(zip(page_ids[starts].tolist(), (np.vecdot(sums, vector) / lengths).tolist(), strict=True))


def score_page_rows(rows: VectorRows, vector: FloatArray) -> dict[int, float]:
    """The same for all passages of some pages, in any order."""
    order = np.lexsort((rows.chunk_ids, rows.page_ids))
    used = order[sample_rows(rows.page_ids[order])]
    return score_means(rows.page_ids[used], rows.vectors[used], vector)
