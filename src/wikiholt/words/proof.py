"""Whether a view taken from a file tells the truth: a few terms are asked of the index too, and answers compared.

Checksums say that a file is as it was written; only the index can say that it was written from this index. A score
depends on every page's length, so pages of another history hardly ever agree.
"""

import math

import numpy as np

from wikiholt.model import PageFilter, KeywordQuery
from wikiholt.ports import WikiIndex
from wikiholt.words.ranking import search_keywords
from wikiholt.words.view import KeywordView

_SAMPLE_TERMS, _RARE_MAX_PAGES, _COMPARED_HITS = 8, 64, 20


def verify_against_index(view: KeywordView, index: WikiIndex) -> bool | None:
    """Whether the index gives the same answers; None when it moved on meanwhile and nothing can be said."""
    if index.get_state().pages != view.page_count:
        return False if index.get_version() == view.version else None
    for number in _sample_terms(view):
        query = KeywordQuery((view.postings.terms.get_term(number),))
        ours, theirs = search_keywords(view, query, _COMPARED_HITS, None), index.search_keywords(query, _COMPARED_HITS, PageFilter())
        if index.get_version() != view.version:
            return None
        if [hit.page_id for hit in ours] != [hit.page_id for hit in theirs]:
            return False
        if not all(math.isclose(a.score, b.score, rel_tol=1e-6) for a, b in zip(ours, theirs, strict=True)):
            return False
    return True


def _sample_terms(view: KeywordView) -> list[int]:
    """Numbers of rare terms: some of the youngest page, where histories differ first, some from everywhere."""
    postings = view.postings
    held = np.diff(postings.offsets)
    youngest = np.flatnonzero(postings.rows == len(postings.page_ids) - 1)
    there = np.searchsorted(postings.offsets, youngest, side="right") - 1
    rare = np.flatnonzero(held <= _RARE_MAX_PAGES)
    everywhere = rare[np.linspace(0, len(rare) - 1, min(_SAMPLE_TERMS, len(rare))).astype(np.int64)]
    return [*there[np.argsort(held[there], kind="stable")][:_SAMPLE_TERMS].tolist(), *everywhere.tolist()]
