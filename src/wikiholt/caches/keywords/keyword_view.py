"""Postings of one version and the pages changed since, as one immutable state that a search uses from start to end.

Rows of changed pages follow the rows of the postings. The old row of a changed or removed page is marked dead until the
next merge. The number of pages, their average length and the page counts of terms include only live rows, so scores are
exact at every version. An update costs time for the changed pages, and a few nanoseconds per page for copies.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.keywords.postings import Postings, RowNumbers, TermStream, TermStreamBuilder, build_postings
from wikiholt.domain.index import FloatArray, IntArray, KeywordDelta, KeywordRow
from wikiholt.domain.page import PageTerms
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.errors import CacheCannotAnswer
from wikiholt.text.bm25 import (
    K1,
    PREFIX_WEIGHT,
    B,
    compute_idf,
    compute_max_score,
    count_phrase,
    count_weighted_terms,
    pad_terms,
    split_terms,
)

MERGE_MIN_ROWS, MERGE_DIVISOR = 200, 20

DoubleArray = NDArray[np.float64]
PostingList = tuple[RowNumbers, FloatArray]
"""The rows that contain a term, and its count in each."""

_MAX_RECENT_PHRASES = 8
_LAST_CHARACTER = chr(0x10FFFF)


@dataclass(frozen=True, slots=True)
class KeywordView:
    """The index at `version`. `alive` is None if no row is dead."""

    version: int
    postings: Postings
    added: Mapping[str, PostingList]
    added_terms: Sequence[str]
    added_rows: Mapping[int, int]
    added_pages: Mapping[int, PageTerms]
    """The live rows of changed pages with their terms, if the postings have positions."""
    page_ids: IntArray
    lengths: IntArray
    alive: NDArray[np.bool_] | None
    page_count: int = field(init=False)
    norms: DoubleArray = field(init=False)
    """The length normalization of BM25 per row: k1 · (1 - b + b · length / average length)."""
    recent_phrases: dict[tuple[str, ...], tuple[PostingList | None]] = field(default_factory=dict, repr=False)
    """One search needs the rows of a phrase three times."""

    def __post_init__(self) -> None:
        live_lengths = self.lengths if self.alive is None else self.lengths[self.alive]
        # Without any term there is no average length, and nothing to find.
        average = int(live_lengths.sum()) / len(live_lengths) if live_lengths.any() else 1.0
        object.__setattr__(self, "page_count", len(live_lengths))
        object.__setattr__(self, "norms", K1 * (1 - B + B * self.lengths.astype(np.float64) / average))

    @property
    def changed_count(self) -> int:
        """The number of rows added since the postings were built, or of dead rows if that is larger."""
        added = len(self.page_ids) - len(self.postings.page_ids)
        return max(added, len(self.page_ids) - self.page_count)

    @property
    def needs_merge(self) -> bool:
        """Whether enough rows changed for a merge."""
        return self.changed_count > max(MERGE_MIN_ROWS, len(self.postings.page_ids) // MERGE_DIVISOR)

    def get_posting_list(self, term: str) -> PostingList | None:
        """Return the live rows that contain the term, or None if there are none."""
        number = self.postings.terms.find_number(term)
        lists = []
        if number is not None:
            start, end = self.postings.offsets[number : number + 2].tolist()
            lists.append((self.postings.rows[start:end], self.postings.counts[start:end]))
        if term in self.added:
            lists.append(self.added[term])
        return self._join_live(lists)

    def get_phrase_list(self, terms: Sequence[str]) -> PostingList | None:
        """Return the live rows that contain the terms in this order, or None if there are none.

        Raises CacheCannotAnswer if the postings have no positions.
        """
        if len(terms) < 2:
            return self.get_posting_list(terms[0]) if terms else None
        if self.postings.positions is None:
            raise _make_phrase_error()
        phrase = tuple(terms)
        known = self.recent_phrases.get(phrase)
        if known is None:
            known = (self._find_phrase(terms),)
            if len(self.recent_phrases) >= _MAX_RECENT_PHRASES:
                self.recent_phrases.clear()
            self.recent_phrases[phrase] = known
        return known[0]

    def _find_phrase(self, terms: Sequence[str]) -> PostingList | None:
        assert self.postings.positions is not None
        numbers = [number for term in terms if (number := self.postings.terms.find_number(term)) is not None]
        lists = [self.postings.positions.find_phrase(numbers)] if len(numbers) == len(terms) else []
        if self.added_pages and all(term in self.added for term in terms):
            lists.append(self._find_added_phrase(terms))
        return self._join_live(lists)

    def _find_added_phrase(self, terms: Sequence[str]) -> PostingList:
        """Search the phrase in the changed pages that contain all its terms."""
        candidates: RowNumbers = reduce(np.intersect1d, (self.added[term][0] for term in terms))
        phrase = pad_terms(" ".join(terms))
        found = []
        for row in candidates.tolist():
            page = self.added_pages.get(row)
            if page is not None and (count := count_phrase(map(pad_terms, page.fields), phrase)):
                found.append((row, count))
        return np.array([row for row, _ in found], np.int32), np.array([count for _, count in found], np.float32)

    def _join_live(self, lists: Sequence[PostingList]) -> PostingList | None:
        if not lists:
            return None
        rows, counts = lists[0] if len(lists) == 1 else (np.concatenate(parts) for parts in zip(*lists, strict=True))
        if self.alive is not None:
            live = self.alive[rows]
            rows, counts = rows[live], counts[live]
        return (rows, counts) if len(rows) else None

    def find_added_by_prefix(self, prefix: str) -> Sequence[str]:
        """Return the terms with the prefix among those of changed pages, sorted."""
        start = bisect_left(self.added_terms, prefix)
        return self.added_terms[start : bisect_left(self.added_terms, prefix + _LAST_CHARACTER)]

    def apply(self, delta: KeywordDelta) -> "KeywordView":
        """Return the view after a delta."""
        touched = np.concatenate([[row.page_id for row in delta.changed], delta.dropped]).astype(np.int64)
        start = len(self.page_ids)
        alive = np.ones(start + len(delta.changed), np.bool_)
        if self.alive is not None:
            alive[:start] = self.alive
        alive[self.postings.find_rows(touched)] = False
        added_rows, added_pages = dict(self.added_rows), dict(self.added_pages)
        for page_id in touched.tolist():
            old_row = added_rows.pop(page_id, None)
            if old_row is not None:
                alive[old_row] = False
                added_pages.pop(old_row, None)
        added_rows.update((row.page_id, start + position) for position, row in enumerate(delta.changed))
        if self.postings.positions is not None:
            added_pages.update((start + position, row.terms) for position, row in enumerate(delta.changed))
        added, lengths = _append_terms(self.added, delta.changed, start)
        new_terms = [term for term in added if term not in self.added]
        return KeywordView(
            delta.version,
            self.postings,
            added,
            sorted([*self.added_terms, *sorted(new_terms)]) if new_terms else self.added_terms,
            added_rows,
            added_pages,
            np.concatenate([self.page_ids, np.fromiter((row.page_id for row in delta.changed), np.int64)]),
            np.concatenate([self.lengths, lengths]),
            None if alive.all() else alive,
        )


def make_view(postings: Postings) -> KeywordView:
    """Return the view without any changes since the postings were built."""
    return KeywordView(postings.version, postings, {}, (), {}, {}, postings.page_ids, postings.lengths, None)


def _append_terms(
    added: Mapping[str, PostingList], changed: Sequence[KeywordRow], start: int
) -> tuple[dict[str, PostingList], IntArray]:
    """Return the lists with the terms of these pages appended, and the lengths of the pages."""
    new_lists: defaultdict[str, tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
    lengths = np.zeros(len(changed), np.int64)
    for position, row in enumerate(changed):
        counts, lengths[position] = count_weighted_terms(row.terms)
        for term, count in counts.items():
            rows, weights = new_lists[term]
            rows.append(start + position)
            weights.append(count)
    merged = dict(added)
    for term, (rows, weights) in new_lists.items():
        new = np.array(rows, np.int32), np.array(weights, np.float32)
        old = merged.get(term)
        merged[term] = (np.append(old[0], new[0]), np.append(old[1], new[1])) if old else new
    return merged, lengths


def merge_postings(view: KeywordView) -> Postings:
    """Build postings of the view's version from the view alone, without text or store."""
    old = view.postings
    alive = np.ones(len(view.page_ids), np.bool_) if view.alive is None else view.alive
    kept = np.flatnonzero(alive)
    kept = kept[np.argsort(view.page_ids[kept], kind="stable")]
    new_row = np.full(len(alive), -1, np.int32)
    new_row[kept] = np.arange(len(kept), dtype=np.int32)

    terms = list(old.terms)
    numbers = {term: number for number, term in enumerate(terms)} if view.added else {}
    parts = [(np.repeat(np.arange(len(terms), dtype=np.int32), np.diff(old.offsets)), old.rows, old.counts)]
    for term, (rows, counts) in view.added.items():
        number = numbers.setdefault(term, len(terms))
        if number == len(terms):
            terms.append(term)
        parts.append((np.full(len(rows), number, np.int32), rows, counts))
    term_numbers, rows, counts = (np.concatenate(part) for part in zip(*parts, strict=True))
    live = alive[rows]
    triples = term_numbers[live], new_row[rows[live]], counts[live]
    stream = _build_stream(view, numbers)
    kept_stream = stream.select_rows(kept) if stream is not None else None
    return build_postings(view.version, terms, triples, view.page_ids[kept], view.lengths[kept], kept_stream)


def _build_stream(view: KeywordView, numbers: Mapping[str, int]) -> TermStream | None:
    """Return the terms of all rows in order, without those of changed pages that are dead; None without positions."""
    if view.postings.positions is None:
        return None
    added = TermStreamBuilder(numbers.__getitem__)
    for row in range(len(view.postings.page_ids), len(view.page_ids)):
        added.add(view.added_pages.get(row, PageTerms("", "", "")))
    return view.postings.positions.to_stream().append(added.build())


# BM25 search over a view, with the formula of FTS5: pages, scores and order equal those of the store


def search_keywords(view: KeywordView, query: KeywordQuery, limit: int, page_ids: IntArray | None) -> list[KeywordHit]:
    """Return the best pages, best first, ties by page id; only of `page_ids` (sorted) if given.

    Raises CacheCannotAnswer for phrases, if the postings have no positions, and for a prefix of several terms. As in
    the store, the terms and the prefix each contribute their best `limit` pages, and the scores of a page in both are
    added.
    """
    terms, prefix = [split_terms(term) for term in query.terms], split_terms(query.prefix)
    phrases = [view.get_phrase_list(_split_phrase(phrase)) for phrase in query.phrases]
    excluded = _find_rows(view, [_split_phrase(phrase) for phrase in query.excluded])
    if len(prefix) > 1:
        raise _make_phrase_error()
    if limit <= 0 or None in phrases:
        return []
    required = [postings[0] for postings in phrases if postings is not None]
    lists = [postings for postings in (*map(view.get_phrase_list, terms), *phrases) if postings is not None]
    scores = _keep_rows(_score_rows(view, lists), required)
    best = _select_best(view, scores, excluded, limit, page_ids)
    if prefix:
        exact_matches = _find_rows(view, terms[-1:])
        scores = _keep_rows(_score_rows(view, [_find_prefix_rows(view, prefix[0])]), required)
        totals = defaultdict[int, float](float, best)
        for page_id, score in _select_best(view, scores, [*excluded, *exact_matches], limit, page_ids):
            totals[page_id] += score * PREFIX_WEIGHT
        best = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [KeywordHit(page_id, score) for page_id, score in best]


def get_max_score(view: KeywordView, query: KeywordQuery) -> float:
    """Return an upper bound of the scores. Raises the same error as `search_keywords`."""
    units = [*map(split_terms, query.terms), *map(_split_phrase, query.phrases)]
    lists = map(view.get_phrase_list, units)
    return sum(compute_max_score(view.page_count, 0 if postings is None else len(postings[0])) for postings in lists)


def find_matching_page_ids(view: KeywordView, query: KeywordQuery) -> IntArray:
    """Return the sorted ids of pages with every phrase and no excluded phrase. Raises the same error."""
    matches = np.ones(len(view.page_ids), np.bool_) if view.alive is None else view.alive.copy()
    for phrase in query.phrases:
        postings = view.get_phrase_list(_split_phrase(phrase))
        contains = np.zeros(len(matches), np.bool_)
        if postings is not None:
            contains[postings[0]] = True
        matches &= contains
    for rows in _find_rows(view, [_split_phrase(phrase) for phrase in query.excluded]):
        matches[rows] = False
    return np.sort(view.page_ids[matches])


def _split_phrase(phrase: Sequence[str]) -> list[str]:
    """Split the terms of a phrase again, as the store does."""
    return split_terms(" ".join(phrase))


def _make_phrase_error() -> CacheCannotAnswer:
    return CacheCannotAnswer("the keyword cache cannot search phrases", hint="search the index")


def _find_rows(view: KeywordView, phrases: Sequence[Sequence[str]]) -> list[RowNumbers]:
    return [postings[0] for phrase in phrases if (postings := view.get_phrase_list(phrase)) is not None]


def _keep_rows(scores: DoubleArray, required: Sequence[RowNumbers]) -> DoubleArray:
    """Set the scores of all rows that are not in each of these lists to zero."""
    for rows in required:
        kept = np.zeros_like(scores)
        kept[rows] = scores[rows]
        scores = kept
    return scores


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
