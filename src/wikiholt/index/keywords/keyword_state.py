"""The keywords of an index at one version: postings, and the pages that changed since they were built.

Rows of changed pages follow the rows of the postings; the old row of a changed or removed page is not alive. The number
of pages, their average length and the page counts of terms include only live rows, so scores are those of the index.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

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
    compute_max_score,
    count_weighted_terms,
    split_terms,
)

DoubleArray = NDArray[np.float64]

_REBUILD_MIN_PAGES, _REBUILD_DIVISOR = 300, 100
"""The postings are old once this many pages changed, or this part of all pages if that is more."""
_MAX_AGE_FACTOR = 3
"""With this many times as many changed pages, the index answers until the postings are built again."""
_MAX_KNOWN_LISTS = 64


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
        found = self._lists.get(term)
        if found is None:
            if len(self._lists) >= _MAX_KNOWN_LISTS:
                self._lists.clear()
            found = self._lists[term] = self._join(self.postings.find_list(term), self.recent.find_list(term))
        return found

    def get_prefix_lists(self, prefix: str) -> PostingList:
        """Return the live rows of all terms with the prefix, one list after the other."""
        return self._join(self.postings.find_prefix_lists(prefix), self.recent.find_prefix_lists(prefix))

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


def search_keywords(
    state: KeywordState, query: KeywordQuery, limit: int, page_ids: IntArray | None
) -> list[KeywordHit]:
    """Return the best pages, best first, ties by page id; only of `page_ids` (sorted) if given.

    Raises CacheCannotAnswer for phrases and exclusions. As in the index, the terms and the prefix each contribute their
    best `limit` pages, and the scores of a page in both are added.
    """
    terms, prefix = _split_query(query)
    if limit <= 0:
        return []
    lists = list(map(state.get_list, terms))
    best = _select_best(state, _score_rows(state, lists), limit, page_ids)
    if prefix:
        # All terms with the prefix count as if they were one.
        sums = np.bincount(*state.get_prefix_lists(prefix), len(state.page_ids)).astype(np.float64)
        matching = np.flatnonzero(sums)
        scores = _score_rows(state, [(matching, sums[matching])])
        if lists:
            scores[lists[-1][0]] = 0  # pages with the last term itself have its score
        totals = defaultdict[int, float](float, best)
        for page_id, score in _select_best(state, scores, limit, page_ids):
            totals[page_id] += score * PREFIX_WEIGHT
        best = sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:limit]
    return [KeywordHit(page_id, score) for page_id, score in best]


def get_max_score(state: KeywordState, query: KeywordQuery) -> float:
    """Return an upper bound of the scores. Raises the same error as `search_keywords`."""
    terms, _ = _split_query(query)
    return sum(compute_max_score(state.page_count, len(state.get_list(term)[0])) for term in terms)


def _split_query(query: KeywordQuery) -> tuple[list[str], str]:
    """Split the terms and the prefix of the query again, as the index does. Raises CacheCannotAnswer for phrases."""
    terms, prefix = [split_terms(term) for term in query.terms], split_terms(query.prefix)
    if query.phrases or query.excluded or len(prefix) > 1 or any(len(parts) != 1 for parts in terms):
        raise CacheCannotAnswer("the keyword cache cannot search phrases", hint="search the index")
    return [term for (term,) in terms], "".join(prefix)


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
