"""How like pages are, by the vectors of their passages. Pure functions."""

import numpy as np

from wikiholt.model import Floats, VectorRows
from wikiholt.ranking import Candidate

PROBES = 8
"""Vectors by which a page looks for others: the middle of its passages, and some of them."""

_COMPARED = 64
"""Passages of a page that are compared one by one; of a longer page, as many from all over it."""

_BEST = 3
"""Passages that speak for a page: one that two pages share by chance makes them less alike than three."""


def probes(own: Floats) -> Floats:
    """What to look near to: the middle first, then passages from all over the page."""
    if len(own) == 1:
        return own
    return np.concatenate([_middle(own)[None], _spread(own, PROBES - 1)])


def alike(own: Floats, rows: VectorRows) -> list[Candidate]:
    """One candidate a page: how near its middle is to this page's, and its passages to the most alike of this one."""
    if not len(rows.chunk_ids):
        return []
    middle = _middle(own)
    # For each passage of the others, the most alike of this page's.
    best = (rows.vectors @ _spread(own, _COMPARED).T).max(axis=1)
    order = np.argsort(rows.page_ids, kind="stable")
    pages, starts = np.unique(rows.page_ids[order], return_index=True)
    found = []
    for page_id, members in zip(pages.tolist(), np.split(order, starts[1:]), strict=True):
        near = members[np.argsort(-best[members], kind="stable")]
        passages = float(best[near[:_BEST]].mean())
        likeness = (float(_middle(rows.vectors[members]) @ middle) + passages) / 2
        chunk_id = int(rows.chunk_ids[near[0]])
        found.append(Candidate(page_id, chunk_id, 1.0 - likeness, None, ("semantic",)))
    return found


def _middle(vectors: Floats) -> Floats:
    total = vectors.mean(axis=0)
    norm = float(np.linalg.norm(total))
    return np.asarray(total / norm if norm > 1e-6 else vectors[0], np.float32)


def _spread(vectors: Floats, count: int) -> Floats:
    """At most so many of the vectors, from all over."""
    if len(vectors) <= count:
        return vectors
    return np.asarray(vectors[np.linspace(0, len(vectors) - 1, count).astype(int)], np.float32)
