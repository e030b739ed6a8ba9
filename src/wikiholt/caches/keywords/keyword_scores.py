"""BM25 over a view, by the very formula of FTS5, so that pages, scores and order are those of the store."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from wikiholt.caches.keywords.keyword_view import DoubleArray, KeywordView, PostingList
from wikiholt.caches.keywords.postings import RowNumbers
from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.errors import CacheCannotAnswer
from wikiholt.text.bm25 import K1, PREFIX_WEIGHT, compute_idf, compute_max_score, split_terms

_LAST_CHARACTER = chr(0x10FFFF)


def search_keywords(view: KeywordView, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> list[KeywordHit]:
    """The best pages, best first, ties by page id; only `pages` (sorted ids) if given.

    Raises NotHere for phrases: positions are not kept. As in the store, whole words and the prefix each put their best
    `limit` pages forward, and what both found is added up.
    """
    if query.phrases:
        raise CacheCannotAnswer("phrases are not kept in the word cache", hint="ask the index")
    terms = [_parse_single_term(term) for term in query.terms]
    prefix = _parse_single_term(query.prefix)
    barred = _find_rows(view, [_parse_single_term(" ".join(phrase)) for phrase in query.excluded])
    if limit <= 0:
        return []
    lists = [held for term in terms if (held := view.get_posting_list(term)) is not None]
    best = _select_best(view, _score_rows(view, lists), barred, limit, page_ids)
    if prefix:
        whole = _find_rows(view, terms[-1:])
        scores = _score_rows(view, [_find_prefix_rows(view, prefix)])
        found = defaultdict[int, float](float, best)
        for page_id, score in _select_best(view, scores, [*barred, *whole], limit, page_ids):
            found[page_id] += score * PREFIX_WEIGHT
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [KeywordHit(page_id, score) for page_id, score in best]


def get_max_score(view: KeywordView, query: KeywordQuery) -> float:
    """The score no page can exceed; NotHere for phrases."""
    if query.phrases:
        raise CacheCannotAnswer("phrases are not kept in the word cache", hint="ask the index")
    lists = [view.get_posting_list(_parse_single_term(term)) for term in query.terms]
    return sum(compute_max_score(view.page_count, 0 if held is None else len(held[0])) for held in lists)


def _parse_single_term(text: str) -> str:
    """The one term in this text; none at all is a term that no page holds, and several are a phrase."""
    terms = split_terms(text)
    if len(terms) > 1:
        raise CacheCannotAnswer("phrases are not kept in the word cache", hint="ask the index")
    return terms[0] if terms else ""


def _find_rows(view: KeywordView, terms: Sequence[str]) -> list[RowNumbers]:
    return [held[0] for term in terms if (held := view.get_posting_list(term)) is not None]


def _score_rows(view: KeywordView, lists: Sequence[PostingList | tuple[IntArray, DoubleArray]]) -> DoubleArray:
    """Every row's sum of what these terms give it; the order of the operations is FTS5's, to the last bit."""
    gains = [_compute_gains(view, rows, counts) for rows, counts in lists]
    if not gains:
        return np.zeros(len(view.page_ids))
    # One pass over all lists, in the order of the terms, is faster than adding list by list.
    rows = np.concatenate([np.asarray(held[0], np.intp) for held in lists])
    return np.bincount(rows, np.concatenate(gains), len(view.page_ids)).astype(np.float64, copy=False)


def _compute_gains(view: KeywordView, rows: RowNumbers | IntArray, counts: FloatArray | DoubleArray) -> DoubleArray:
    """idf · count · (k1 + 1) / (count + norm), worked out in place."""
    gain = counts.astype(np.float64)
    below = view.norms.take(rows)
    below += gain
    gain *= K1 + 1.0
    gain /= below
    gain *= compute_idf(view.page_count, len(rows))
    return gain


def _find_prefix_rows(view: KeywordView, prefix: str) -> tuple[IntArray, DoubleArray]:
    """All terms with this beginning as if they were one: their lists lie side by side."""
    postings = view.postings
    first, last = postings.terms.find_prefix_range(prefix)
    span = slice(int(postings.offsets[first]), int(postings.offsets[last]))
    counts: DoubleArray = np.bincount(postings.rows[span], postings.counts[span], len(view.page_ids)).astype(np.float64)
    at = bisect_left(view.added_terms, prefix)
    for term in view.added_terms[at : bisect_left(view.added_terms, prefix + _LAST_CHARACTER)]:
        rows, more = view.added[term]
        counts[rows] += more
    if view.alive is not None:
        counts[~view.alive] = 0
    held = np.flatnonzero(counts)
    return held, counts[held]


def _select_best(
    view: KeywordView,
    scores: DoubleArray,
    excluded: Sequence[RowNumbers],
    limit: int,
    allowed_page_ids: IntArray | None,
) -> list[tuple[int, float]]:
    """The best `limit` pages that may compete, with their scores, best first."""
    for lost in excluded:
        scores[lost] = 0
    # Whatever holds a term has a score above zero.
    rows = np.flatnonzero(scores > 0)
    if allowed_page_ids is not None:
        rows = rows[np.isin(view.page_ids[rows], allowed_page_ids, assume_unique=True)]
    best = scores[rows]
    if len(rows) > limit:
        competing = np.flatnonzero(best >= np.partition(best, len(best) - limit)[len(best) - limit])
        rows, best = rows[competing], best[competing]
    page_ids = view.page_ids[rows]
    order = np.lexsort((page_ids, -best))[:limit]
    return list(zip(page_ids[order].tolist(), best[order].tolist(), strict=True))
