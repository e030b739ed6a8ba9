"""The terms of one wiki by their beginnings and endings, for whoever asks what a query's word could mean.

A lexicon is one immutable state. Terms with an ending are found by comparing the last bytes of all terms at once, which
takes half a millisecond for a hundred thousand; those with a beginning lie side by side.
"""

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import numpy as np

from wikiholt.caches.keywords.keyword_view import KeywordView, make_view
from wikiholt.caches.keywords.postings import PostingsBuilder
from wikiholt.domain.index import IntArray
from wikiholt.domain.protocols import KeywordCache, Lexicon
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.domain.storage_protocols import WikiIndex

_LOG = logging.getLogger(__name__)
_LAST_CHARACTER = chr(0x10FFFF)
_MAX_COUNTED_PAGES = 1_000_000
_MAX_CHARACTER_BYTES = 4
"""Bytes a character takes at most."""


class ViewLexicon:
    """The `Lexicon` of one view; only terms of living pages are in it."""

    def __init__(self, view: KeywordView) -> None:
        self._view = view

    def count_pages(self, term: str) -> int:
        held = self._view.get_posting_list(term)
        return 0 if held is None else len(held[0])

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        view = self._view
        numbers = np.arange(*view.postings.terms.find_prefix_range(prefix))
        at = bisect_left(view.added_terms, prefix)
        added = view.added_terms[at : bisect_left(view.added_terms, prefix + _LAST_CHARACTER)]
        return self._take_terms(self._filter_by_length(numbers, lengths), added, limit, lengths)

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        terms, wanted = self._view.postings.terms, suffix.encode()
        text, ends = np.frombuffer(terms.text, np.uint8), np.frombuffer(terms.ends, np.int64)
        numbers = self._filter_by_length(np.flatnonzero(np.diff(ends, prepend=0) >= len(wanted)), lengths)
        for back, byte in enumerate(reversed(wanted), 1):
            numbers = numbers[text[ends[numbers] - back] == byte]
        added = [term for term in self._view.added_terms if term.endswith(suffix)]
        held = np.diff(self._view.postings.offsets)[numbers]
        built = self._take_terms(numbers[np.argsort(-held, kind="stable")], (), limit + len(added), lengths)
        likely = {*built, *self._take_terms(numbers[:0], added, len(added), lengths)}
        return sorted(likely, key=lambda term: (-self.count_pages(term), term))[:limit]

    def _filter_by_length(self, numbers: IntArray, lengths: range | None) -> IntArray:
        """Those of the terms that can have so many letters, by their bytes."""
        if lengths is None or not len(numbers):
            return numbers
        ends = np.frombuffer(self._view.postings.terms.ends, np.int64)
        size = ends[numbers] - np.where(numbers > 0, ends[numbers - 1], 0)
        return numbers[(size >= lengths.start) & (size < lengths.stop * _MAX_CHARACTER_BYTES)]

    def _take_terms(self, numbers: IntArray, added: Sequence[str], limit: int, lengths: range | None) -> list[str]:
        found: list[str] = []
        for term in self._iter_live_terms(numbers, added):
            if len(found) >= limit:
                break
            if lengths is None or len(term) in lengths:
                found.append(term)
        return found

    def _iter_live_terms(self, numbers: IntArray, added: Sequence[str]) -> Iterator[str]:
        view = self._view
        terms, offsets, rows = view.postings.terms, view.postings.offsets, view.postings.rows
        fresh = set(added)
        for number in numbers.tolist():
            if view.alive is None or view.alive[rows[offsets[number] : offsets[number + 1]]].any():
                term = terms.get_term(number)
                fresh.discard(term)
                yield term
        yield from (term for term in added if term in fresh and self.count_pages(term))


class _LazyLexicon:
    """The lexicon of an index whose terms nobody has needed yet: counts are asked of it, more makes it be read.

    An index that cannot be read has no term that begins or ends so.
    """

    def __init__(self, index: WikiIndex, load: Callable[[], Lexicon | None]) -> None:
        self._index = index
        self._load = load
        self._terms: Lexicon | None = None

    def count_pages(self, term: str) -> int:
        if self._terms is not None:
            return self._terms.count_pages(term)
        return len(self._index.search_keywords(KeywordQuery((term,)), _MAX_COUNTED_PAGES, PageFilter())) if term else 0

    def find_by_prefix(self, prefix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        lexicon = self._terms = self._terms or self._load()
        return lexicon.find_by_prefix(prefix, limit, lengths) if lexicon is not None else ()

    def find_by_suffix(self, suffix: str, limit: int, lengths: range | None = None) -> Sequence[str]:
        lexicon = self._terms = self._terms or self._load()
        return lexicon.find_by_suffix(suffix, limit, lengths) if lexicon is not None else ()


class LexiconProvider:
    """Gives the lexicon of one index as it is now: its word cache's, or where it has none one of its own.

    Safe to use from many threads. Its own is built when its terms are first searched, which takes a tenth of a second
    for three hundred pages, and follows the index by what changed since.
    """

    def __init__(self, index: WikiIndex, keyword_cache: KeywordCache | None) -> None:
        self._index = index
        self._keyword_cache = keyword_cache
        self._view: KeywordView | None = None
        self._process_id, self._lock = os.getpid(), Lock()

    def __call__(self) -> Lexicon | None:
        """Raises what its word cache raises while that is not ready, or broken; a search goes on without."""
        if self._keyword_cache is not None:
            self._keyword_cache.refresh()
            return self._keyword_cache.get_lexicon()
        return _LazyLexicon(self._index, self._build_lexicon) if self._view is None else self._build_lexicon()

    def _build_lexicon(self) -> Lexicon | None:
        try:
            return ViewLexicon(self._get_view())
        except Exception as error:  # noqa: BLE001 - as above
            _LOG.info("there is no lexicon now: %s", error)
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
        """The same at the index's version; None where building is as good, or needed."""
        if view is None or view.needs_merge:
            return None
        delta = self._index.get_keyword_changes(view.version)
        return None if delta is None else view.apply(delta)

    def _build_view(self) -> KeywordView:
        builder = PostingsBuilder()
        with self._index.open_keyword_rows() as (version, rows):
            for row in rows:
                builder.add(row)
        return make_view(builder.build(version))
