"""BM25 search over a view, with the formula of FTS5: pages, scores and order equal those of the store."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from wikiholt.caches.keywords.keyword_view import DoubleArray, KeywordView, PostingList
from wikiholt.caches.keywords.postings import RowNumbers
from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.errors import CacheCannotAnswer
from wikiholt.text.bm25 import K1, PREFIX_WEIGHT, compute_idf, compute_max_score, split_terms


def search_keywords(view: KeywordView, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> list[KeywordHit]:
    """Return the best pages, best first, ties by page id; only of `page_ids` (sorted) if given.

    Raises CacheCannotAnswer for phrases: the cache has no positions. As in the store, the terms and the prefix each
    contribute their best `limit` pages, and the scores of a page in both are added.
    """
    if query.phrases:
        raise _make_phrase_error()
    terms = [_parse_single_term(term) for term in query.terms]
    prefix = _parse_single_term(query.prefix)
    excluded = _find_rows(view, [_parse_single_term(" ".join(phrase)) for phrase in query.excluded])
    if limit <= 0:
        return []
    lists = [postings for term in terms if (postings := view.get_posting_list(term)) is not None]
    best = _select_best(view, _score_rows(view, lists), excluded, limit, page_ids)
    if prefix:
        exact_matches = _find_rows(view, terms[-1:])
        scores = _score_rows(view, [_find_prefix_rows(view, prefix)])
        totals = defaultdict[int, float](float, best)
        for page_id, score in _select_best(view, scores, [*excluded, *exact_matches], limit, page_ids):
            totals[page_id] += score * PREFIX_WEIGHT
        best = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [KeywordHit(page_id, score) for page_id, score in best]


def get_max_score(view: KeywordView, query: KeywordQuery) -> float:
    """Return an upper bound of the scores. Raises CacheCannotAnswer for phrases."""
    if query.phrases:
        raise _make_phrase_error()
    lists = [view.get_posting_list(_parse_single_term(term)) for term in query.terms]
    return sum(compute_max_score(view.page_count, 0 if postings is None else len(postings[0])) for postings in lists)


def _make_phrase_error() -> CacheCannotAnswer:
    return CacheCannotAnswer("the keyword cache cannot search phrases", hint="search the index")


def _parse_single_term(text: str) -> str:
    """Return the single term of a text, or "", which matches no page. Several terms are a phrase."""
    terms = split_terms(text)
    if len(terms) > 1:
        raise _make_phrase_error()
    return terms[0] if terms else ""


def _find_rows(view: KeywordView, terms: Sequence[str]) -> list[RowNumbers]:
    return [postings[0] for term in terms if (postings := view.get_posting_list(term)) is not None]


def _score_rows(view: KeywordView, lists: Sequence[PostingList | tuple[IntArray, DoubleArray]]) -> DoubleArray:
    """Sum the scores of these terms for every row. The order of the operations is that of FTS5, to the last bit."""
    gains = [_compute_gains(view, rows, counts) for rows, counts in lists]
    if not gains:
        return np.zeros(len(view.page_ids))
    # One pass over all lists, in the order of the terms, is faster than one pass per list.
    rows = np.concatenate([np.asarray(postings[0], np.intp) for postings in lists])
    return np.bincount(rows, np.concatenate(gains), len(view.page_ids)).astype(np.float64, copy=False)


def _compute_gains(view: KeywordView, rows: RowNumbers | IntArray, counts: FloatArray | DoubleArray) -> DoubleArray:
    """Compute idf · count · (k1 + 1) / (count + norm) in place."""
    gains = counts.astype(np.float64)
    denominators = view.norms.take(rows)
    denominators += gains
    gains *= K1 + 1.0
    gains /= denominators
    gains *= compute_idf(view.page_count, len(rows))
    return gains


def _find_prefix_rows(view: KeywordView, prefix: str) -> tuple[IntArray, DoubleArray]:
    """Return the rows and counts of all terms with the prefix as if they were one term; their lists are adjacent."""
    postings = view.postings
    first, last = postings.terms.find_prefix_range(prefix)
    span = slice(int(postings.offsets[first]), int(postings.offsets[last]))
    counts: DoubleArray = np.bincount(postings.rows[span], postings.counts[span], len(view.page_ids)).astype(np.float64)
    for term in view.find_added_by_prefix(prefix):
        rows, added_counts = view.added[term]
        counts[rows] += added_counts
    if view.alive is not None:
        counts[~view.alive] = 0
    matching = np.flatnonzero(counts)
    return matching, counts[matching]


def _select_best(
    view: KeywordView,
    scores: DoubleArray,
    excluded: Sequence[RowNumbers],
    limit: int,
    allowed_page_ids: IntArray | None,
) -> list[tuple[int, float]]:
    """Return the best `limit` pages that are allowed and not excluded, with their scores, best first."""
    for excluded_rows in excluded:
        scores[excluded_rows] = 0
    # Every row that contains a term has a score above zero.
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
