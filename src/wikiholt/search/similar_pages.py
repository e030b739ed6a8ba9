"""Pages that are similar to a page, by the vectors of their passages."""

from collections.abc import Sequence

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray, VectorHits, VectorRows
from wikiholt.domain.search import StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.search.ranking import Candidate, compute_logistic, rate_score
from wikiholt.text.near_duplicates import are_nearly_same, read_wording

_RELATED_MIDPOINT, _RELATED_WIDTH = 0.565, 0.09
"""The cosine share at which a page is as likely related as not. Chosen by eye; there are no judgements for it."""

_MEDIUM_LIKELIHOOD = 0.15
"""A page is at least medium from here on."""

MAX_PROBES = 5
"""Vectors with which similar pages are searched: the mean of the page's passages, and some of the passages."""

COMPARED_PAGES = 60
"""Pages that are compared passage by passage. Fixed, so that a larger n only lengthens the list."""

_MAX_COMPARED_CHUNKS = 64
"""Passages of a page that are compared. A longer page is sampled evenly."""

_COPY_WORDS = 0.8
"""Pages whose numbers of words differ more are not compared word by word. They are not nearly the same."""

_BEST_CHUNKS = 3
"""Passages that count for a page, so that one passage shared by chance is not enough."""


def make_probe_vectors(vectors: FloatArray) -> FloatArray:
    """Vectors to search with: the mean first, then passages sampled over the page."""
    if len(vectors) == 1:
        return vectors
    return np.concatenate([_compute_mean(vectors)[None], _sample_evenly(vectors, MAX_PROBES - 1)])


def find_nearest_pages(hits: Sequence[VectorHits], excluded_page_id: int) -> list[int]:
    """The pages nearest to any of the probes, without the page itself, up to COMPARED_PAGES."""
    page_ids = np.concatenate([probe_hits.page_ids for probe_hits in hits])
    distances = np.concatenate([probe_hits.distances for probe_hits in hits])
    order = np.lexsort((page_ids, distances))
    ordered = page_ids[order]
    _, firsts = np.unique(ordered, return_index=True)
    return [page_id for page_id in ordered[np.sort(firsts)].tolist() if page_id != excluded_page_id][:COMPARED_PAGES]


def score_similar(own: FloatArray, rows: VectorRows) -> list[Candidate]:
    """One candidate per page, the most similar first: by the pages' means and their most similar passages."""
    if not len(rows.chunk_ids):
        return []
    # For each passage of the others, its highest similarity to this page; then by page, the most similar first.
    best = (rows.vectors @ _sample_evenly(own, _MAX_COMPARED_CHUNKS).T).max(axis=1)
    order = np.lexsort((-best, rows.page_ids))
    pages, starts, counts = np.unique(rows.page_ids[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(starts, counts)
    totals = np.add.reduceat(np.where(rank < _BEST_CHUNKS, best[order], 0), starts)
    passages = totals / np.minimum(counts, _BEST_CHUNKS)
    means = np.add.reduceat(rows.vectors[order], starts, axis=0)
    norms = np.maximum(np.linalg.norm(means, axis=1), 1e-6)
    similarity = (means @ _compute_mean(own) / norms + passages) / 2
    chunks = rows.chunk_ids[order][starts]
    ordered = sorted(zip((1.0 - similarity).tolist(), pages.tolist(), chunks.tolist(), strict=True))
    channels = ("semantic",)
    return [Candidate(page, chunk, distance, None, channels) for distance, page, chunk in ordered]


def find_copies(index: WikiIndex, page: StoredPage, page_ids: Sequence[int]) -> dict[int, str]:
    """The pages among these that are nearly the same as this page, with their paths."""
    others = [
        other
        for other in index.get_pages(page_ids).values()
        if min(other.words, page.words) >= _COPY_WORDS * max(other.words, page.words)
    ]
    if not others:
        return {}
    chunks = index.get_page_chunks([page.page_id, *(other.page_id for other in others)], _MAX_COMPARED_CHUNKS)
    wordings = {page_id: read_wording("\n".join(chunk.text for chunk in found)) for page_id, found in chunks.items()}
    own = wordings.get(page.page_id)
    return {
        other.page_id: other.path
        for other in others
        if own is not None and (wording := wordings.get(other.page_id)) is not None and are_nearly_same(own, wording)
    }


def _compute_mean(vectors: FloatArray) -> FloatArray:
    total = vectors.mean(axis=0)
    norm = float(np.linalg.norm(total))
    return np.asarray(total / norm if norm > 1e-6 else vectors[0], np.float32)


def _sample_evenly(vectors: FloatArray, count: int) -> FloatArray:
    """At most `count` of the vectors, sampled evenly."""
    if len(vectors) <= count:
        return vectors
    return np.asarray(vectors[np.linspace(0, len(vectors) - 1, count).astype(int)], np.float32)


def with_related_likelihoods(candidates: Sequence[Candidate], scale: CosineScale) -> list[Candidate]:
    """The same candidates, with the likelihood that each is related to the page they were compared with."""
    related = []
    for candidate in candidates:
        meaning = 0.0 if candidate.distance is None else scale.normalize(1.0 - candidate.distance)
        likelihood = compute_logistic((meaning - _RELATED_MIDPOINT) / _RELATED_WIDTH)
        confidence = rate_score(likelihood, is_medium=likelihood >= _MEDIUM_LIKELIHOOD)
        related.append(candidate._replace(likelihood=likelihood, confidence=confidence))
    return related
