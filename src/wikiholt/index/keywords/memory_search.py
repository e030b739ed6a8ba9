"""Keyword search in the memory of this process, for an index that has no keyword index of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Lock

import numpy as np

from wikiholt.domain.index import IntArray
from wikiholt.domain.page import PageTerms
from wikiholt.domain.search import KeywordHit, KeywordQuery
from wikiholt.domain.storage_protocols import KeywordSnapshot
from wikiholt.index.keywords.keyword_state import (
    KeywordState,
    QueryLists,
    count_pages,
    find_lists,
    follow_index,
    iter_page_counts,
    rank_pages,
)
from wikiholt.index.keywords.postings import PostingList, build_postings
from wikiholt.text.bm25 import count_phrase, pad_terms


class MemoryKeywordSearch:
    """Postings that follow one index: only pages that changed are read again. Safe to use from many threads.

    Every method gets the version of the index that the search has read, and reads the index only if it has another
    one, or to check phrases against the terms of pages.
    """

    def __init__(
        self,
        open_keywords: Callable[[], AbstractContextManager[KeywordSnapshot]],
        read_terms: Callable[[Sequence[int]], Iterable[tuple[int, PageTerms]]],
    ) -> None:
        """`read_terms` reads the terms of the pages with these ids, in any order."""
        self._open_keywords = open_keywords
        self._read_terms = read_terms
        self._following = Lock()
        """Only one thread reads the index: for a large wiki that takes seconds."""
        self._state: KeywordState | None = None

    def search(
        self, version: int | None, query: KeywordQuery, limit: int, page_ids: IntArray | None
    ) -> Sequence[KeywordHit]:
        """The best pages, best first; only of `page_ids` (sorted) if given."""
        state, lists = self._find_lists(version, query)
        return rank_pages(state, lists, limit, page_ids)

    def count_pages(self, version: int | None, terms: Sequence[str]) -> Mapping[str, int]:
        _, lists = self._find_lists(version, KeywordQuery(tuple(terms)))
        return count_pages(terms, lists)

    def count_terms(self, version: int | None) -> tuple[int, Mapping[str, int]]:
        """The version, and every term, sorted, with the number of pages that contain it."""
        state = self._get_state(version)
        return state.version, state.count_terms()

    def find_page_ids(self, version: int | None, query: KeywordQuery) -> IntArray:
        """The sorted ids of the pages with every phrase and without excluded phrases."""
        state, lists = self._find_lists(version, query)
        rows = state.get_live_rows()
        for found, _ in lists.phrases:
            rows = np.intersect1d(rows, found)
        for found, _ in lists.excluded:
            rows = np.setdiff1d(rows, found)
        return np.sort(state.page_ids[rows])

    def release(self) -> None:
        """Release the postings. The next search reads the index again."""
        self._state = None

    def _find_lists(self, version: int | None, query: KeywordQuery) -> tuple[KeywordState, QueryLists]:
        state = self._get_state(version)
        return state, find_lists(
            state, query, lambda terms, is_prefix: self._get_phrase(state, terms, is_prefix=is_prefix)
        )

    def _get_state(self, version: int | None) -> KeywordState:
        state = self._state
        if state is not None and state.version == version:
            return state
        with self._following:
            state = self._state
            if state is None or state.version != version:
                with self._open_keywords() as snapshot:
                    state = follow_index(state, snapshot) if state is not None else None
                    if state is None:
                        state = KeywordState(snapshot.version, build_postings(iter_page_counts(snapshot)))
                self._state = state
        return state

    def _get_phrase(self, state: KeywordState, terms: Sequence[str], *, is_prefix: bool) -> PostingList:
        phrase = f" {' '.join(terms)}{'' if is_prefix else ' '}"
        return state.get_known_list(phrase, lambda: self._find_phrase(state, terms, phrase, is_prefix=is_prefix))

    def _find_phrase(self, state: KeywordState, terms: Sequence[str], phrase: str, *, is_prefix: bool) -> PostingList:
        """Find the rows with the phrase among those that contain all its terms, by the words of their pages."""
        *first, last = terms
        last_list = state.get_prefix_lists(last) if is_prefix else state.get_list(last)
        rows = state.get_live_rows()
        for found, _ in (*map(state.get_list, first), last_list):
            rows = np.intersect1d(rows, found)
        known = {
            page_id: count_phrase(map(pad_terms, page.fields), phrase)
            for page_id, page in self._read_terms(state.page_ids[rows].tolist())
        }
        counts = np.array([known.get(page_id, 0) for page_id in state.page_ids[rows].tolist()], np.float32)
        return rows[counts > 0].astype(np.int32), counts[counts > 0]
