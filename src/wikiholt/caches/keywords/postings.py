"""The terms of an inverted index, sorted, looked up where they lie.

A binary search over the mapped bytes costs about four microseconds a term and no memory; a dict of a hundred thousand
terms would cost some ten megabytes and a pause at every opening.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray, KeywordRow
from wikiholt.text.bm25 import count_weighted_terms

_AFTER_ANY_TERM = b"\xff"
"""No UTF-8 text holds this byte, so a prefix followed by it sorts after every term that begins with the prefix."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Terms in the order of their UTF-8 bytes; a term's number is its place in that order."""

    text: memoryview
    ends: memoryview
    """Where each term ends in `text`, as 64-bit numbers."""

    def __len__(self) -> int:
        return len(self.ends)

    def __iter__(self) -> Iterator[str]:
        start = 0
        for end in self.ends.tolist():
            yield str(self.text[start:end], "utf-8")
            start = end

    def get_term(self, number: int) -> str:
        return self._get_bytes(number).decode()

    def find_number(self, term: str) -> int | None:
        """The term's number, or None when no page holds it."""
        wanted = term.encode()
        number = self._find_place(wanted)
        return number if number < len(self) and self._get_bytes(number) == wanted else None

    def find_prefix_range(self, prefix: str) -> tuple[int, int]:
        """The half-open range of the numbers of all terms that begin with the prefix."""
        wanted = prefix.encode()
        return self._find_place(wanted), self._find_place(wanted + _AFTER_ANY_TERM)

    def _find_place(self, wanted: bytes) -> int:
        return bisect_left(range(len(self)), wanted, key=self._get_bytes)

    def _get_bytes(self, number: int) -> bytes:
        start = self.ends[number - 1] if number else 0
        return self.text[start : self.ends[number]].tobytes()


def make_vocabulary(terms: Iterable[str]) -> Vocabulary:
    """A vocabulary in memory, of terms that are sorted already."""
    encoded = [term.encode() for term in terms]
    ends = np.cumsum([len(term) for term in encoded], dtype=np.int64)
    return Vocabulary(memoryview(b"".join(encoded)), memoryview(ends.tobytes()).cast("q"))


# An inverted index of one version of a wiki: which pages hold a term, and how much.


RowNumbers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Postings:
    """Immutable arrays, in memory or mapped from a file. A row is a page; rows are sorted by page id.

    The pages of term t are `rows[offsets[t]:offsets[t + 1]]`, ascending; `counts` beside them holds how often each
    page has the term, every occurrence counted with the weight of its field.
    """

    version: int
    terms: Vocabulary
    offsets: IntArray
    rows: RowNumbers
    counts: FloatArray
    page_ids: IntArray
    lengths: IntArray
    """How many terms each page has, over all fields."""

    def find_rows(self, page_ids: IntArray) -> IntArray:
        """The rows of those of these pages that are here."""
        places = np.searchsorted(self.page_ids, page_ids)
        places = places[places < len(self.page_ids)] if len(self.page_ids) else places[:0]
        return np.asarray(places[np.isin(self.page_ids[places], page_ids)], np.int64)


def build_postings(
    version: int,
    terms: Sequence[str],
    triples: tuple[RowNumbers, RowNumbers, FloatArray],
    page_ids: IntArray,
    lengths: IntArray,
) -> Postings:
    """Postings from loose triples (number in `terms`, row, count); terms that nothing holds are left out."""
    numbers, rows, counts = triples
    held = np.bincount(numbers, minlength=len(terms))
    by_text = sorted(np.flatnonzero(held).tolist(), key=terms.__getitem__)
    place = np.zeros(len(terms), np.int32)
    place[by_text] = np.arange(len(by_text), dtype=np.int32)
    order = np.lexsort((rows, place[numbers]))
    offsets = np.zeros(len(by_text) + 1, np.int64)
    np.cumsum(held[by_text], out=offsets[1:])
    sorted_terms = make_vocabulary(terms[number] for number in by_text)
    return Postings(version, sorted_terms, offsets, rows[order], counts[order], page_ids, lengths)


# From pages' words to postings, at about thirty bytes of memory a posting; the text itself is never kept.


class PostingsBuilder:
    """Takes pages in any order, each once."""

    def __init__(self) -> None:
        self._term_numbers: defaultdict[str, int] = defaultdict()
        # A new term gets the next number, without leaving C for it.
        self._term_numbers.default_factory = self._term_numbers.__len__
        self._terms = array("i")
        self._counts = array("f")
        self._page_ids = array("q")
        self._lengths = array("q")
        self._distinct_counts = array("q")

    def add(self, row: KeywordRow) -> None:
        counts, length = count_weighted_terms(row.terms)
        self._terms.extend(map(self._term_numbers.__getitem__, counts))
        self._counts.extend(counts.values())
        self._page_ids.append(row.page_id)
        self._lengths.append(length)
        self._distinct_counts.append(len(counts))

    def build(self, version: int) -> Postings:
        page_ids = np.array(self._page_ids, np.int64)
        by_id = np.argsort(page_ids, kind="stable")
        row = np.empty(len(by_id), np.int32)
        row[by_id] = np.arange(len(by_id), dtype=np.int32)
        rows = np.repeat(row, np.array(self._distinct_counts, np.int64))
        triples = np.array(self._terms, np.int32), rows, np.array(self._counts, np.float32)
        lengths = np.array(self._lengths, np.int64)
        return build_postings(version, list(self._term_numbers), triples, page_ids[by_id], lengths[by_id])
