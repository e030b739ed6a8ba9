"""The keywords of an index at one version: postings, and the pages that changed since they were built.

Rows of changed pages follow the rows of the postings; the old row of a changed or removed page is not alive. The number
of pages, their average length and the page counts of terms include only live rows, so scores are those of the index.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import IntArray
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.domain.storage_protocols import KeywordSnapshot
from wikiholt.errors import CacheCannotAnswer
from wikiholt.index.keywords.keyword_file import KeywordFile
from wikiholt.index.keywords.postings import PageCounts, PostingList, Postings, build_postings
from wikiholt.text.bm25 import (
    K1,
    PREFIX_WEIGHT,
    B,
    compute_idf,
    count_weighted_terms,
    split_terms,
)

DoubleArray = NDArray[np.float64]

_REBUILD_MIN_PAGES, _REBUILD_DIVISOR = 300, 100
"""The postings are old once this many pages changed, or this part of all pages if that is more."""
_MAX_AGE_FACTOR = 3
"""With this many times as many changed pages, the index answers until the postings are built again."""
_MAX_KNOWN_LISTS = 64
_EMPTY_LIST: PostingList = np.empty(0, np.int32), np.empty(0, np.float32)


class KeywordState:
    """The keywords of the index at `version`. Never changes, so a search sees one version from start to end."""

    def __init__(
        self,
        version: int,
        postings: Postings,
        file: KeywordFile | None = None,
        alive: NDArray[np.bool_] | None = None,
        changed: Mapping[int, PageCounts] = MappingProxyType({}),
    ) -> None:
        """`file` is what the postings are mapped from, if they are. `changed` has the changed pages by key, in order.

        `alive` marks the rows of the postings that are as they were built; None if all are.
        """
        self.version = version
        self.postings = postings
        self.file = file
        self.changed = changed
        self._alive = alive
        self.recent = build_postings(changed.values())
        """The postings of the changed pages."""
        self.page_ids: IntArray = np.concatenate([postings.page_keys, self.recent.page_keys]) >> 32
        dead_count = 0 if alive is None else len(alive) - int(alive.sum())
        self.page_count = len(self.page_ids) - dead_count
        self.is_old = max(len(changed), dead_count) > _get_rebuild_limit(postings)
        """Whether it is time to build the postings again."""
        total = sum(int(part.sum()) for part in (postings.lengths[self._get_live(slice(None))], self.recent.lengths))
        lengths = np.concatenate([postings.lengths, self.recent.lengths]).astype(np.float64)
        # Without any term there is no average length, and nothing to find.
        self.norms: DoubleArray = K1 * (1 - B + B * lengths / (total / max(1, self.page_count) or 1.0))
        """The length normalization of BM25 per row: k1 · (1 - b + b · length / average length)."""
        self._lists: dict[str, PostingList] = {}
        """The last lists that were found. One search needs each several times."""

    def get_list(self, term: str) -> PostingList:
        """Return the live rows that contain the term, with their counts."""
        return self.get_known_list(term, lambda: self._join(self.postings.find_list(term), self.recent.find_list(term)))

    def get_known_list(self, key: str, find: Callable[[], PostingList]) -> PostingList:
        """Return the list of a term, or of a padded phrase, that was found before, or find it."""
        found = self._lists.get(key)
        if found is None:
            if len(self._lists) >= _MAX_KNOWN_LISTS:
                self._lists.clear()
            found = self._lists[key] = find()
        return found

    def get_prefix_lists(self, prefix: str) -> PostingList:
        """Return the live rows of all terms with the prefix, one list after the other."""
        return self._join(self.postings.find_prefix_lists(prefix), self.recent.find_prefix_lists(prefix))

    def get_live_rows(self) -> IntArray:
        """Return the rows of all pages."""
        rows = np.arange(len(self.page_ids))
        return rows if self._alive is None else rows[np.append(self._alive, np.ones(len(self.changed), bool))]

    def count_terms(self) -> dict[str, int]:
        """Return every term, sorted, with the number of pages that contain it."""
        counts = Counter[str]()
        for part, alive in ((self.postings, self._alive), (self.recent, None)):
            numbers = np.repeat(np.arange(len(part.offsets) - 1), np.diff(part.offsets))
            found = np.bincount(numbers if alive is None else numbers[alive[part.rows]])
            counts.update(
                {part.terms.get_term(number): int(found[number]) for number in np.flatnonzero(found).tolist()}
            )
        return dict(sorted(counts.items()))

    def is_live(self, number: int) -> bool:
        """Whether a live row of the postings has their term with this number."""
        start, end = self.postings.offsets[number : number + 2].tolist()
        return self._alive is None or bool(self._alive[self.postings.rows[start:end]].any())

    def _join(self, built: PostingList, recent: PostingList) -> PostingList:
        live = self._get_live(built[0])
        rows, counts = built[0][live], built[1][live]
        if not len(recent[0]):
            return rows, counts
        return np.append(rows, recent[0] + np.int32(len(self.postings.lengths))), np.append(counts, recent[1])

    def _get_live(self, rows: NDArray[np.int32] | slice) -> NDArray[np.bool_] | slice:
        return slice(None) if self._alive is None else self._alive[rows]


def iter_page_counts(snapshot: KeywordSnapshot, keys: Sequence[int] | None = None) -> Iterator[PageCounts]:
    """Count the terms of the pages with these keys (sorted), or of all."""
    pages = snapshot.iter_terms(None if keys is None else [key >> 32 for key in keys])
    for key, (_, terms) in zip(snapshot.page_keys.tolist() if keys is None else keys, pages, strict=True):
        yield PageCounts(key, *count_weighted_terms(terms))


def follow_index(state: KeywordState, snapshot: KeywordSnapshot) -> KeywordState | None:
    """Return the state at the version of the snapshot; None if too many pages differ from the postings.

    Pages are compared by their keys, so it does not matter when or in which history of the index they changed.
    """
    postings, known = state.postings, state.changed
    alive = np.isin(postings.page_keys, snapshot.page_keys, assume_unique=True)
    is_built = np.isin(snapshot.page_keys, postings.page_keys, assume_unique=True)
    different = snapshot.page_keys[~is_built].tolist()
    if max(len(different), len(alive) - int(alive.sum())) > _MAX_AGE_FACTOR * _get_rebuild_limit(postings):
        return None
    read = {page.key: page for page in iter_page_counts(snapshot, [key for key in different if key not in known])}
    changed = {key: known.get(key) or read[key] for key in different}
    return KeywordState(snapshot.version, postings, state.file, None if alive.all() else alive, changed)


def _get_rebuild_limit(postings: Postings) -> int:
    return max(_REBUILD_MIN_PAGES, len(postings.lengths) // _REBUILD_DIVISOR)


# BM25 search in a state, with the formula of FTS5: pages, scores and order equal those of the index


FindPhrase = Callable[[Sequence[str], bool], PostingList]
"""Finds the rows that contain these terms side by side, the last one as a prefix if the second value says so."""


class QueryLists(NamedTuple):
    """The rows that contain each part of a query, with the counts."""

    terms: Sequence[PostingList]
    phrases: Sequence[PostingList]
    excluded: Sequence[PostingList]
    prefix: PostingList | None


def refuse_phrase(terms: Sequence[str], is_prefix: bool) -> PostingList:  # noqa: ARG001
    raise CacheCannotAnswer("the keyword cache cannot search phrases", hint="search the index")


def find_lists(state: KeywordState, query: KeywordQuery, find_phrase: FindPhrase = refuse_phrase) -> QueryLists:
    """Find the parts of a query. Its terms are split again, as the index does."""

    def find(text: str, *, is_prefix: bool = False) -> PostingList:
        terms = split_terms(text)
        if len(terms) > 1:
            return find_phrase(terms, is_prefix)
        if not terms:
            return _EMPTY_LIST
        return state.get_prefix_lists(terms[0]) if is_prefix else state.get_list(terms[0])

    return QueryLists(
        [find(term) for term in query.terms],
        [find(" ".join(phrase)) for phrase in query.phrases],
        [find(" ".join(phrase)) for phrase in query.excluded],
        find(query.prefix, is_prefix=True) if query.prefix else None,
    )


def rank_pages(state: KeywordState, lists: QueryLists, limit: int, page_ids: IntArray | None) -> list[KeywordHit]:
    """Return the best pages, best first, ties by page id; only of `page_ids` (sorted) if given.

    As in the index, the terms and the prefix each contribute their best `limit` pages, and the scores of a page in both
    are added.
    """
    if limit <= 0:
        return []
    scores = _score_rows(state, [*lists.terms, *lists.phrases])
    best = _select_best(state, _drop_unfit(scores, lists), limit, page_ids)
    if lists.prefix is not None:
        # All terms with the prefix count as if they were one.
        sums = np.bincount(*lists.prefix, len(state.page_ids)).astype(np.float64)
        matching = np.flatnonzero(sums)
        scores = _score_rows(state, [(matching, sums[matching])])
        if lists.terms:
            scores[lists.terms[-1][0]] = 0  # pages with the last term itself have its score
        totals = defaultdict[int, float](float, best)
        for page_id, score in _select_best(state, _drop_unfit(scores, lists), limit, page_ids):
            totals[page_id] += score * PREFIX_WEIGHT
        best = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [KeywordHit(page_id, score) for page_id, score in best]


def count_pages(terms: Sequence[str], lists: QueryLists) -> dict[str, int]:
    """Return the number of pages with each of these terms of a query."""
    return {term: len(rows) for term, (rows, _) in zip(terms, lists.terms, strict=True)}


def _drop_unfit(scores: DoubleArray, lists: QueryLists) -> DoubleArray:
    """Set the scores of rows without all phrases, or with an excluded one, to zero."""
    for rows, _ in lists.phrases:
        kept = scores[rows]
        scores = np.zeros_like(scores)
        scores[rows] = kept
    for rows, _ in lists.excluded:
        scores[rows] = 0
    return scores


def _score_rows(state: KeywordState, lists: Sequence[PostingList | tuple[IntArray, DoubleArray]]) -> DoubleArray:
    """Sum the scores of these terms for every row. The order of the operations is that of FTS5, to the last bit."""
    if not lists:
        return np.zeros(len(state.page_ids))
    gains = []
    for rows, counts in lists:
        # idf · count · (k1 + 1) / (count + norm), in place
        gain = counts.astype(np.float64)
        denominators = state.norms.take(rows)
        denominators += gain
        gain *= K1 + 1.0
        gain /= denominators
        gain *= compute_idf(state.page_count, len(rows))
        gains.append(gain)
    # One pass over all lists, in the order of the terms, is faster than one pass per list.
    all_rows = np.concatenate([np.asarray(rows, np.intp) for rows, _ in lists])
    return np.bincount(all_rows, np.concatenate(gains), len(state.page_ids)).astype(np.float64, copy=False)


def _select_best(
    state: KeywordState, scores: DoubleArray, limit: int, allowed_page_ids: IntArray | None
) -> list[tuple[int, float]]:
    """Return the best `limit` pages that are allowed, with their scores, best first."""
    # Every row that contains a term has a score above zero.
    rows = np.flatnonzero(scores > 0)
    if allowed_page_ids is not None:
        rows = rows[np.isin(state.page_ids[rows], allowed_page_ids, assume_unique=True)]
    best = scores[rows]
    if len(rows) > limit:
        competing = np.flatnonzero(best >= np.partition(best, len(best) - limit)[len(best) - limit])
        rows, best = rows[competing], best[competing]
    page_ids = state.page_ids[rows]
    order = np.lexsort((page_ids, -best))[:limit]
    return list(zip(page_ids[order].tolist(), best[order].tolist(), strict=True))
