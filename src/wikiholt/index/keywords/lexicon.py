"""Lexicons: the terms of one wiki by prefix and suffix, for spelling correction and query expansion."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from wikiholt.domain.index import IntArray
from wikiholt.domain.protocols import KeywordCache, Lexicon
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import CacheCannotAnswer
from wikiholt.index.keywords.keyword_state import KeywordState
from wikiholt.index.keywords.postings import Vocabulary, make_vocabulary

_MAX_CHARACTER_BYTES = 4
"""The most bytes a character takes in UTF-8."""


class TermTable(NamedTuple):
    """Terms, each with the number of pages that contain it, or did when the table was built."""

    terms: Vocabulary
    page_counts: IntArray
    is_live: Callable[[int], bool] = lambda _: True
    """Whether a page still contains the term with this number."""

    def drop_unfit(self, numbers: IntArray, lengths: range | None) -> IntArray:
        """Drop the terms whose byte length rules out the lengths in characters."""
        if lengths is None:
            return numbers
        sizes = np.diff(self.terms.ends, prepend=0)[numbers]
        return numbers[(sizes >= lengths.start) & (sizes < lengths.stop * _MAX_CHARACTER_BYTES)]

    def take_terms(self, numbers: IntArray, limit: int, lengths: range | None) -> list[str]:
        """Return the first of these terms that are live; with `lengths`, only terms of these lengths."""
        taken: list[str] = []
        for number in numbers.tolist():
            if len(taken) >= limit:
                break
            term = self.terms.get_term(number)
            if (lengths is None or len(term) in lengths) and self.is_live(number):
                taken.append(term)
        return taken


class TermLexicon:
    """The `Lexicon` of some tables, which are loaded at the first search by prefix or suffix."""

    def __init__(
        self,
        count_pages: Callable[[Sequence[str]], Mapping[str, int]],
        load_tables: Callable[[], Sequence[TermTable]],
    ) -> None:
        self._count_pages = count_pages
        self._load_tables = load_tables

    def count_pages(self, term: str) -> int:
        return self._count_pages([term])[term] if term else 0

    def has_any(self, term_groups: Sequence[Sequence[str]]) -> Sequence[bool]:
        counts = self._count_pages(list(dict.fromkeys(term for terms in term_groups for term in terms if term)))
        return [any(counts.get(term, 0) for term in terms) for terms in term_groups]

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        found = set[str]()
        for table in self._load_tables():
            numbers = table.drop_unfit(np.arange(*table.terms.find_prefix_range(prefix)), lengths)
            found.update(table.take_terms(numbers, limit, lengths))
        return sorted(found)[:limit]

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        tables = self._load_tables()
        found = [table.drop_unfit(table.terms.find_suffix(suffix), lengths) for table in tables]
        total = sum(map(len, found))
        candidates = set[str]()
        for table, numbers in zip(tables, found, strict=True):
            by_count = numbers[np.argsort(-table.page_counts[numbers], kind="stable")]
            # With the pages of other tables, a term of those may come before the first ones of this table.
            candidates.update(table.take_terms(by_count, limit + total - len(numbers), lengths))
        # Terms on as many pages are in alphabetical order, so that every process finds the same ones.
        return sorted(candidates, key=lambda term: (-self.count_pages(term), term))[:limit]


def make_state_lexicon(state: KeywordState) -> TermLexicon:
    """Return the lexicon of a keyword state."""
    built, recent = state.postings, state.recent
    return TermLexicon(
        lambda terms: {term: len(state.get_list(term)[0]) for term in terms},
        lambda: (
            TermTable(built.terms, np.diff(built.offsets), state.is_live),
            TermTable(recent.terms, np.diff(recent.offsets)),
        ),
    )


class LexiconProvider:
    """Returns the current lexicon of one index: that of its keyword cache, or of the index if that cannot answer.

    Safe to use from many threads. The terms of an index are read at the first search by prefix or suffix, which takes
    some thirty milliseconds for a thousand pages, and kept until it changes. Before that the index counts.
    """

    def __init__(self, index: WikiIndex, keyword_cache: KeywordCache | None) -> None:
        self._index = index
        self._keyword_cache = keyword_cache
        self._loaded: tuple[int, TermTable] | None = None

    def __call__(self) -> Lexicon:
        if self._keyword_cache is not None:
            with suppress(CacheCannotAnswer):  # it is being built
                self._keyword_cache.refresh()
                return self._keyword_cache.get_lexicon()
        return TermLexicon(self._count_pages, lambda: (self._load_table(),))

    def _count_pages(self, terms: Sequence[str]) -> Mapping[str, int]:
        loaded = self._loaded
        if loaded is None or loaded[0] != self._index.get_version():
            return self._index.count_pages(terms)
        numbers = {term: loaded[1].terms.find_number(term) for term in terms}
        return {term: 0 if at is None else int(loaded[1].page_counts[at]) for term, at in numbers.items()}

    def _load_table(self) -> TermTable:
        loaded = self._loaded
        if loaded is None or loaded[0] != self._index.get_version():
            version, counts = self._index.count_terms()
            table = TermTable(make_vocabulary(counts), np.fromiter(counts.values(), np.int64, len(counts)))
            self._loaded = loaded = version, table
        return loaded[1]
