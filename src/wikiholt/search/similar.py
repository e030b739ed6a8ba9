"""How like pages are, by the vectors of their passages. Pure functions."""

from collections.abc import Sequence

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray, VectorHits, VectorRows
from wikiholt.search.ranking import Candidate

MAX_PROBES = 5
"""Vectors by which a page looks for others: the middle of its passages, and some of them."""

COMPARED_PAGES = 60
"""Pages that are compared passage by passage; fixed, so that asking for more hits only lengthens the list."""

_MAX_COMPARED_CHUNKS = 64
"""Passages of a page that are compared one by one; of a longer page, as many from all over it."""

_BEST_CHUNKS = 3
"""Passages that speak for a page: one that two pages share by chance makes them less alike than three."""


def make_probe_vectors(vectors: FloatArray) -> FloatArray:
    """What to look near to: the middle first, then passages from all over the page."""
    if len(vectors) == 1:
        return vectors
    return np.concatenate([_compute_mean(vectors)[None], _sample_evenly(vectors, MAX_PROBES - 1)])


def find_nearest_pages(hits: Sequence[VectorHits], excluded_page_id: int) -> list[int]:
    """The pages nearest to any of the probes, itself left out: those that are worth a closer look."""
    page_ids = np.concatenate([each.page_ids for each in hits])
    distances = np.concatenate([each.distances for each in hits])
    order = np.lexsort((page_ids, distances))
    ordered = page_ids[order]
    _, firsts = np.unique(ordered, return_index=True)
    return [page_id for page_id in ordered[np.sort(firsts)].tolist() if page_id != excluded_page_id][:COMPARED_PAGES]


def score_similar(own: FloatArray, rows: VectorRows, scale: CosineScale) -> list[Candidate]:
    """One candidate a page: how near its middle is to this page's, and its passages to the most alike of this one."""
    if not len(rows.chunk_ids):
        return []
    # For each passage of the others, the most alike of this page's; then page by page, the most alike first.
    best = (rows.vectors @ _sample_evenly(own, _MAX_COMPARED_CHUNKS).T).max(axis=1)
    order = np.lexsort((-best, rows.page_ids))
    pages, starts, counts = np.unique(rows.page_ids[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    passages = np.add.reduceat(np.where(place < _BEST_CHUNKS, best[order], 0), starts) / np.minimum(
        counts, _BEST_CHUNKS
    )
    middles = np.add.reduceat(rows.vectors[order], starts, axis=0)
    norms = np.maximum(np.linalg.norm(middles, axis=1), 1e-6)
    likeness = (middles @ _compute_mean(own) / norms + passages) / 2
    found = zip(pages.tolist(), rows.chunk_ids[order][starts].tolist(), (1.0 - likeness).tolist(), strict=True)
    by = ("semantic",)
    return [Candidate(page, chunk, distance, None, by, scale=scale) for page, chunk, distance in found]


def _compute_mean(vectors: FloatArray) -> FloatArray:
    total = vectors.mean(axis=0)
    norm = float(np.linalg.norm(total))
    return np.asarray(total / norm if norm > 1e-6 else vectors[0], np.float32)


def _sample_evenly(vectors: FloatArray, count: int) -> FloatArray:
    """At most so many of the vectors, from all over."""
    if len(vectors) <= count:
        return vectors
    return np.asarray(vectors[np.linspace(0, len(vectors) - 1, count).astype(int)], np.float32)
