"""BM25 over a view, by the very formula of FTS5, so that pages, scores and order are those of the store."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from wikiholt.errors import NotHere
from wikiholt.model import Floats, Ints, WordHit, WordQuery
from wikiholt.text.fields import K1, PREFIX_WEIGHT, idf, most, split
from wikiholt.words.postings import Rows
from wikiholt.words.view import Doubles, List, View

_LAST = chr(0x10FFFF)


def search(view: View, query: WordQuery, limit: int, pages: Ints | None) -> list[WordHit]:
    """The best pages, best first, ties by page id; only `pages` (sorted ids) if given.

    Raises NotHere for phrases: positions are not kept. As in the store, whole words and the prefix each put their best
    `limit` pages forward, and what both found is added up.
    """
    if query.phrases:
        raise NotHere("phrases are not kept in the word cache", hint="ask the index")
    terms = [_single(term) for term in query.terms]
    prefix = _single(query.prefix)
    barred = _holding(view, [_single(" ".join(phrase)) for phrase in query.excluded])
    if limit <= 0:
        return []
    lists = [held for term in terms if (held := view.list_of(term)) is not None]
    best = _best(view, _scores(view, lists), barred, limit, pages)
    if prefix:
        whole = _holding(view, terms[-1:])
        scores = _scores(view, [_beginning_with(view, prefix)])
        found = defaultdict[int, float](float, best)
        for page_id, score in _best(view, scores, [*barred, *whole], limit, pages):
            found[page_id] += score * PREFIX_WEIGHT
        best = sorted(found.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [WordHit(page_id, score) for page_id, score in best]


def best_possible(view: View, query: WordQuery) -> float:
    """The score no page can exceed; NotHere for phrases."""
    if query.phrases:
        raise NotHere("phrases are not kept in the word cache", hint="ask the index")
    lists = [view.list_of(_single(term)) for term in query.terms]
    return sum(most(view.pages, 0 if held is None else len(held[0])) for held in lists)


def _single(text: str) -> str:
    """The one term in this text; none at all is a term that no page holds, and several are a phrase."""
    terms = split(text)
    if len(terms) > 1:
        raise NotHere("phrases are not kept in the word cache", hint="ask the index")
    return terms[0] if terms else ""


def _holding(view: View, terms: Sequence[str]) -> list[Rows]:
    return [held[0] for term in terms if (held := view.list_of(term)) is not None]


def _scores(view: View, lists: Sequence[List | tuple[Ints, Doubles]]) -> Doubles:
    """Every row's sum of what these terms give it; the order of the operations is FTS5's, to the last bit."""
    gains = [_gain(view, rows, counts) for rows, counts in lists]
    if not gains:
        return np.zeros(len(view.page_ids))
    # One pass over all lists, in the order of the terms, is faster than adding list by list.
    rows = np.concatenate([np.asarray(held[0], np.intp) for held in lists])
    return np.bincount(rows, np.concatenate(gains), len(view.page_ids)).astype(np.float64, copy=False)


def _gain(view: View, rows: Rows | Ints, counts: Floats | Doubles) -> Doubles:
    """idf · count · (k1 + 1) / (count + norm), worked out in place."""
    gain = counts.astype(np.float64)
    below = view.norms.take(rows)
    below += gain
    gain *= K1 + 1.0
    gain /= below
    gain *= idf(view.pages, len(rows))
    return gain


def _beginning_with(view: View, prefix: str) -> tuple[Ints, Doubles]:
    """All terms with this beginning as if they were one: their lists lie side by side."""
    postings = view.postings
    first, last = postings.terms.beginning_with(prefix)
    span = slice(int(postings.offsets[first]), int(postings.offsets[last]))
    counts: Doubles = np.bincount(postings.rows[span], postings.counts[span], len(view.page_ids)).astype(np.float64)
    at = bisect_left(view.added_terms, prefix)
    for term in view.added_terms[at : bisect_left(view.added_terms, prefix + _LAST)]:
        rows, more = view.added[term]
        counts[rows] += more
    if view.alive is not None:
        counts[~view.alive] = 0
    held = np.flatnonzero(counts)
    return held, counts[held]


def _best(
    view: View, scores: Doubles, barred: Sequence[Rows], limit: int, pages: Ints | None
) -> list[tuple[int, float]]:
    """The best `limit` pages that may compete, with their scores, best first."""
    for lost in barred:
        scores[lost] = 0
    # Whatever holds a term has a score above zero.
    rows = np.flatnonzero(scores > 0)
    if pages is not None:
        rows = rows[np.isin(view.page_ids[rows], pages, assume_unique=True)]
    best = scores[rows]
    if len(rows) > limit:
        competing = np.flatnonzero(best >= np.partition(best, len(best) - limit)[len(best) - limit])
        rows, best = rows[competing], best[competing]
    page_ids = view.page_ids[rows]
    order = np.lexsort((page_ids, -best))[:limit]
    return list(zip(page_ids[order].tolist(), best[order].tolist(), strict=True))
