"""How like pages are, by the vectors of their passages. Pure functions."""

from collections.abc import Sequence

import numpy as np

from wikiholt.model import Floats, Neighbours, Scale, VectorRows
from wikiholt.ranking import Candidate

PROBES = 5
"""Vectors by which a page looks for others: the middle of its passages, and some of them."""

LOOKED_AT = 60
"""Pages that are compared passage by passage; fixed, so that asking for more hits only lengthens the list."""

_COMPARED = 64
"""Passages of a page that are compared one by one; of a longer page, as many from all over it."""

_BEST = 3
"""Passages that speak for a page: one that two pages share by chance makes them less alike than three."""


def probes(own: Floats) -> Floats:
    """What to look near to: the middle first, then passages from all over the page."""
    if len(own) == 1:
        return own
    return np.concatenate([_middle(own)[None], _spread(own, PROBES - 1)])


def nearest_pages(near: Sequence[Neighbours], but: int) -> list[int]:
    """The pages nearest to any of the probes, itself left out: those that are worth a closer look."""
    page_ids = np.concatenate([each.page_ids for each in near])
    distances = np.concatenate([each.distances for each in near])
    order = np.lexsort((page_ids, distances))
    ordered = page_ids[order]
    _, firsts = np.unique(ordered, return_index=True)
    return [page_id for page_id in ordered[np.sort(firsts)].tolist() if page_id != but][:LOOKED_AT]


def alike(own: Floats, rows: VectorRows, scale: Scale) -> list[Candidate]:
    """One candidate a page: how near its middle is to this page's, and its passages to the most alike of this one."""
    if not len(rows.chunk_ids):
        return []
    # For each passage of the others, the most alike of this page's; then page by page, the most alike first.
    best = (rows.vectors @ _spread(own, _COMPARED).T).max(axis=1)
    order = np.lexsort((-best, rows.page_ids))
    pages, starts, counts = np.unique(rows.page_ids[order], return_index=True, return_counts=True)
    place = np.arange(len(order)) - np.repeat(starts, counts)
    passages = np.add.reduceat(np.where(place < _BEST, best[order], 0), starts) / np.minimum(counts, _BEST)
    middles = np.add.reduceat(rows.vectors[order], starts, axis=0)
    norms = np.maximum(np.linalg.norm(middles, axis=1), 1e-6)
    likeness = (middles @ _middle(own) / norms + passages) / 2
    found = zip(pages.tolist(), rows.chunk_ids[order][starts].tolist(), (1.0 - likeness).tolist(), strict=True)
    by = ("semantic",)
    return [Candidate(page, chunk, distance, None, by, scale=scale) for page, chunk, distance in found]


def _middle(vectors: Floats) -> Floats:
    total = vectors.mean(axis=0)
    norm = float(np.linalg.norm(total))
    return np.asarray(total / norm if norm > 1e-6 else vectors[0], np.float32)


def _spread(vectors: Floats, count: int) -> Floats:
    """At most so many of the vectors, from all over."""
    if len(vectors) <= count:
        return vectors
    return np.asarray(vectors[np.linspace(0, len(vectors) - 1, count).astype(int)], np.float32)
