"""Lexicons: the terms of one wiki by prefix and suffix, for spelling correction and query expansion.

A lexicon is immutable. Terms with a prefix are adjacent. Terms with a suffix are found by comparing the last bytes of
all terms at once, which takes half a millisecond for a hundred thousand terms.
"""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import numpy as np

from wikiholt.caches.keywords.keyword_view import KeywordView, make_view
from wikiholt.caches.keywords.postings import PostingsBuilder
from wikiholt.domain.index import IntArray
from wikiholt.domain.protocols import KeywordCache, Lexicon
from wikiholt.domain.storage_protocols import WikiIndex

_LOG = logging.getLogger(__name__)
_MAX_CHARACTER_BYTES = 4
"""The most bytes a character takes in UTF-8."""


class ViewLexicon:
    """The `Lexicon` of one view. It contains only terms of live pages."""

    def __init__(self, view: KeywordView) -> None:
        self._view = view

    def count_pages(self, term: str) -> int:
        postings = self._view.get_posting_list(term)
        return 0 if postings is None else len(postings[0])

    def has_any(self, term_groups: Sequence[Sequence[str]]) -> Sequence[bool]:
        return [any(map(self.count_pages, terms)) for terms in term_groups]

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        view = self._view
        numbers = np.arange(*view.postings.terms.find_prefix_range(prefix))
        added = view.find_added_by_prefix(prefix)
        return self._take_terms(self._filter_by_length(numbers, lengths), added, limit, lengths)

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        terms, encoded = self._view.postings.terms, suffix.encode()
        text, ends = np.frombuffer(terms.text, np.uint8), np.frombuffer(terms.ends, np.int64)
        numbers = self._filter_by_length(np.flatnonzero(np.diff(ends, prepend=0) >= len(encoded)), lengths)
        for distance, byte in enumerate(reversed(encoded), 1):
            numbers = numbers[text[ends[numbers] - distance] == byte]
        added = [term for term in self._view.added_terms if term.endswith(suffix)]
        page_counts = np.diff(self._view.postings.offsets)[numbers]
        built = self._take_terms(numbers[np.argsort(-page_counts, kind="stable")], (), limit + len(added), lengths)
        candidates = {*built, *self._take_terms(numbers[:0], added, len(added), lengths)}
        return sorted(candidates, key=lambda term: (-self.count_pages(term), term))[:limit]

    def _filter_by_length(self, numbers: IntArray, lengths: range | None) -> IntArray:
        """Drop the terms whose byte length rules out the lengths in characters."""
        if lengths is None or not len(numbers):
            return numbers
        ends = np.frombuffer(self._view.postings.terms.ends, np.int64)
        sizes = ends[numbers] - np.where(numbers > 0, ends[numbers - 1], 0)
        return numbers[(sizes >= lengths.start) & (sizes < lengths.stop * _MAX_CHARACTER_BYTES)]

    def _take_terms(self, numbers: IntArray, added: Sequence[str], limit: int, lengths: range | None) -> list[str]:
        terms: list[str] = []
        for term in self._iter_live_terms(numbers, added):
            if len(terms) >= limit:
                break
            if lengths is None or len(term) in lengths:
                terms.append(term)
        return terms

    def _iter_live_terms(self, numbers: IntArray, added: Sequence[str]) -> Iterator[str]:
        view = self._view
        terms, offsets, rows = view.postings.terms, view.postings.offsets, view.postings.rows
        remaining = set(added)
        for number in numbers.tolist():
            if view.alive is None or view.alive[rows[offsets[number] : offsets[number + 1]]].any():
                term = terms.get_term(number)
                remaining.discard(term)
                yield term
        yield from (term for term in added if term in remaining and self.count_pages(term))


class _LazyLexicon:
    """A `Lexicon` that loads the terms at the first prefix or suffix search. Counts come from the index until then.

    If the index cannot be read, prefix and suffix searches find nothing.
    """

    def __init__(self, index: WikiIndex, load: Callable[[], Lexicon | None]) -> None:
        self._index = index
        self._load = load
        self._lexicon: Lexicon | None = None

    def count_pages(self, term: str) -> int:
        if self._lexicon is not None:
            return self._lexicon.count_pages(term)
        return self._index.count_pages([term])[term] if term else 0

    def has_any(self, term_groups: Sequence[Sequence[str]]) -> Sequence[bool]:
        if self._lexicon is not None:
            return self._lexicon.has_any(term_groups)
        counts = self._index.count_pages([term for terms in term_groups for term in terms if term])
        return [any(counts.get(term, 0) for term in terms) for terms in term_groups]

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        lexicon = self._get_loaded()
        return lexicon.find_by_prefix(prefix, limit, lengths) if lexicon is not None else ()

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        lexicon = self._get_loaded()
        return lexicon.find_by_suffix(suffix, limit, lengths) if lexicon is not None else ()

    def _get_loaded(self) -> Lexicon | None:
        self._lexicon = self._lexicon or self._load()
        return self._lexicon


class LexiconProvider:
    """Returns the current lexicon of one index: that of its keyword cache, or its own if there is no such cache.

    Safe to use from many threads. Its own lexicon is built at the first search, which takes a tenth of a second for
    three hundred pages, and then follows the changes of the index.
    """

    def __init__(self, index: WikiIndex, keyword_cache: KeywordCache | None) -> None:
        self._index = index
        self._keyword_cache = keyword_cache
        self._view: KeywordView | None = None
        self._process_id, self._lock = os.getpid(), Lock()

    def __call__(self) -> Lexicon | None:
        """Return the lexicon. Raises the errors of the keyword cache (CacheNotReady, CacheBroken)."""
        if self._keyword_cache is not None:
            self._keyword_cache.refresh()
            return self._keyword_cache.get_lexicon()
        return _LazyLexicon(self._index, self._build_lexicon) if self._view is None else self._build_lexicon()

    def _build_lexicon(self) -> Lexicon | None:
        try:
            return ViewLexicon(self._get_view())
        except Exception as error:  # noqa: BLE001 - a search goes on without a lexicon
            _LOG.info("the lexicon is unavailable: %s", error)
            return None

    def _get_view(self) -> KeywordView:
        if self._process_id != os.getpid():
            self._process_id, self._lock = os.getpid(), Lock()
        with self._lock:
            view = self._view
            if view is None or view.version != self._index.get_version():
                view = self._view = self._apply_changes(view) or self._build_view()
            return view

    def _apply_changes(self, view: KeywordView | None) -> KeywordView | None:
        """Return the view at the index's version; None if a rebuild is needed or costs no more."""
        if view is None or view.needs_merge:
            return None
        delta = self._index.get_keyword_changes(view.version)
        return None if delta is None else view.apply(delta)

    def _build_view(self) -> KeywordView:
        builder = PostingsBuilder()
        with self._index.open_keyword_rows() as (version, rows):
            builder.add_all(rows)
        return make_view(builder.build(version))
