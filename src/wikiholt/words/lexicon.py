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

from wikiholt.model import Filter, Ints, WordQuery
from wikiholt.ports import Lexicon, WikiIndex, WordCache
from wikiholt.words.building import Builder
from wikiholt.words.view import View, view_of

_LOG = logging.getLogger(__name__)
_LAST = chr(0x10FFFF)
_MANY = 1_000_000
_MOST_BYTES = 4
"""Bytes a character takes at most."""


class ViewLexicon:
    """The `Lexicon` of one view; only terms of living pages are in it."""

    def __init__(self, view: View) -> None:
        self._view = view

    def pages(self, term: str) -> int:
        held = self._view.list_of(term)
        return 0 if held is None else len(held[0])

    def beginning_with(self, beginning: str, most: int, lengths: range | None = None) -> Sequence[str]:
        view = self._view
        numbers = np.arange(*view.postings.terms.beginning_with(beginning))
        at = bisect_left(view.added_terms, beginning)
        added = view.added_terms[at : bisect_left(view.added_terms, beginning + _LAST)]
        return self._some(self._fitting(numbers, lengths), added, most, lengths)

    def ending_with(self, ending: str, most: int, lengths: range | None = None) -> Sequence[str]:
        terms, wanted = self._view.postings.terms, ending.encode()
        text, ends = np.frombuffer(terms.text, np.uint8), np.frombuffer(terms.ends, np.int64)
        numbers = self._fitting(np.flatnonzero(np.diff(ends, prepend=0) >= len(wanted)), lengths)
        for back, byte in enumerate(reversed(wanted), 1):
            numbers = numbers[text[ends[numbers] - back] == byte]
        added = [term for term in self._view.added_terms if term.endswith(ending)]
        held = np.diff(self._view.postings.offsets)[numbers]
        built = self._some(numbers[np.argsort(-held, kind="stable")], (), most + len(added), lengths)
        likely = {*built, *self._some(numbers[:0], added, len(added), lengths)}
        return sorted(likely, key=lambda term: (-self.pages(term), term))[:most]

    def _fitting(self, numbers: Ints, lengths: range | None) -> Ints:
        """Those of the terms that can have so many letters, by their bytes."""
        if lengths is None or not len(numbers):
            return numbers
        ends = np.frombuffer(self._view.postings.terms.ends, np.int64)
        size = ends[numbers] - np.where(numbers > 0, ends[numbers - 1], 0)
        return numbers[(size >= lengths.start) & (size < lengths.stop * _MOST_BYTES)]

    def _some(self, numbers: Ints, added: Sequence[str], most: int, lengths: range | None) -> list[str]:
        found: list[str] = []
        for term in self._living(numbers, added):
            if len(found) >= most:
                break
            if lengths is None or len(term) in lengths:
                found.append(term)
        return found

    def _living(self, numbers: Ints, added: Sequence[str]) -> Iterator[str]:
        view = self._view
        terms, offsets, rows = view.postings.terms, view.postings.offsets, view.postings.rows
        fresh = set(added)
        for number in numbers.tolist():
            if view.alive is None or view.alive[rows[offsets[number] : offsets[number + 1]]].any():
                term = terms.term(number)
                fresh.discard(term)
                yield term
        yield from (term for term in added if term in fresh and self.pages(term))


class _Unread:
    """The lexicon of an index whose terms nobody has needed yet: counts are asked of it, more makes it be read.

    An index that cannot be read has no term that begins or ends so.
    """

    def __init__(self, index: WikiIndex, read: Callable[[], Lexicon | None]) -> None:
        self._index = index
        self._read = read
        self._terms: Lexicon | None = None

    def pages(self, term: str) -> int:
        if self._terms is not None:
            return self._terms.pages(term)
        return len(self._index.words(WordQuery((term,)), _MANY, Filter())) if term else 0

    def beginning_with(self, beginning: str, most: int, lengths: range | None = None) -> Sequence[str]:
        lexicon = self._terms = self._terms or self._read()
        return lexicon.beginning_with(beginning, most, lengths) if lexicon is not None else ()

    def ending_with(self, ending: str, most: int, lengths: range | None = None) -> Sequence[str]:
        lexicon = self._terms = self._terms or self._read()
        return lexicon.ending_with(ending, most, lengths) if lexicon is not None else ()


class Lexicons:
    """Gives the lexicon of one index as it is now: its word cache's, or where it has none one of its own.

    Safe to use from many threads. Its own is built when its terms are first searched, which takes a tenth of a second
    for three hundred pages, and follows the index by what changed since.
    """

    def __init__(self, index: WikiIndex, words: WordCache | None) -> None:
        self._index = index
        self._words = words
        self._view: View | None = None
        self._process, self._lock = os.getpid(), Lock()

    def __call__(self) -> Lexicon | None:
        """Raises what its word cache raises while that is not ready, or broken; a search goes on without."""
        if self._words is not None:
            self._words.refresh()
            return self._words.lexicon()
        return _Unread(self._index, self._built_one) if self._view is None else self._built_one()

    def _built_one(self) -> Lexicon | None:
        try:
            return ViewLexicon(self._own())
        except Exception as error:  # noqa: BLE001 - as above
            _LOG.info("there is no lexicon now: %s", error)
            return None

    def _own(self) -> View:
        if self._process != os.getpid():
            self._process, self._lock = os.getpid(), Lock()
        with self._lock:
            view = self._view
            if view is None or view.version != self._index.version():
                view = self._view = self._followed(view) or self._built()
            return view

    def _followed(self, view: View | None) -> View | None:
        """The same at the index's version; None where building is as good, or needed."""
        if view is None or view.overgrown:
            return None
        delta = self._index.words_since(view.version)
        return None if delta is None else view.after(delta)

    def _built(self) -> View:
        builder = Builder()
        with self._index.word_rows() as (version, rows):
            for row in rows:
                builder.add(row)
        return view_of(builder.finish(version))
