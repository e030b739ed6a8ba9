"""An inverted index of one version of a wiki: sorted terms, for each the pages that contain it, and its positions.

Terms are found by a binary search over the mapped bytes, which takes about four microseconds and no memory. A dict of a
hundred thousand terms would take ten megabytes and delay every opening.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray, KeywordRow
from wikiholt.domain.page import PageTerms
from wikiholt.text.bm25 import FIELD_WEIGHTS, count_weighted_terms, split_terms

# Positions of terms, by which the keyword cache finds phrases. The fields of all pages follow each other in one stream.
# A gap of one position after each field keeps phrases inside a field. The positions of a term are sorted, so a phrase
# is found by a binary search for each occurrence of its rarest term; the time does not depend on the length of pages.

_FIELDS = len(FIELD_WEIGHTS)
_GAP = -1
"""Takes the place of a term number after each field."""
_MAX_POSITIONS = 2**31 - 2**20
"""Positions are 32-bit numbers. The rest is for the length of a phrase."""

_WEIGHTS = np.array(FIELD_WEIGHTS)


@dataclass(frozen=True, slots=True)
class TermStream:
    """The term numbers of pages in order, with gaps, and the first position of each field of each row."""

    numbers: NDArray[np.int32]
    field_starts: IntArray

    def append(self, other: "TermStream") -> "TermStream":
        """Return the stream with the rows of another one after its own."""
        field_starts = np.concatenate([self.field_starts, other.field_starts + len(self.numbers)])
        return TermStream(np.concatenate([self.numbers, other.numbers]), field_starts)

    def select_rows(self, rows: IntArray) -> "TermStream":
        """Return the stream of these rows, in this order."""
        row_starts = self.field_starts[::_FIELDS]
        sizes = np.diff(row_starts, append=len(self.numbers))[rows]
        new_starts = np.cumsum(sizes) - sizes
        source = np.repeat(row_starts[rows] - new_starts, sizes)
        source += np.arange(len(source))
        inside = self.field_starts.reshape(-1, _FIELDS)[rows] - row_starts[rows, None]
        return TermStream(self.numbers[source], (inside + new_starts[:, None]).ravel())


class TermStreamBuilder:
    """Builds a stream from pages, whose rows are in the order in which they are added."""

    def __init__(self, get_number: Callable[[str], int]) -> None:
        """`get_number` returns the number of a term."""
        self._get_number = get_number
        self._numbers = array("i")
        self._field_starts = array("q")

    def add(self, terms: PageTerms) -> None:
        for text in terms.fields:
            self._field_starts.append(len(self._numbers))
            self._numbers.extend(map(self._get_number, split_terms(text)))
            self._numbers.append(_GAP)

    def build(self) -> TermStream:
        return TermStream(np.array(self._numbers, np.int32), np.array(self._field_starts, np.int64))


@dataclass(frozen=True, slots=True)
class Positions:
    """Immutable arrays, in memory or mapped from a file.

    The positions of term t are `places[offsets[t]:offsets[t + 1]]`, ascending.
    """

    places: NDArray[np.int32]
    offsets: IntArray
    field_starts: IntArray

    def find_phrase(self, numbers: Sequence[int]) -> tuple[NDArray[np.int32], FloatArray]:
        """Return the rows that contain the terms with these numbers in this order, and the weighted count in each."""
        lists = [self.places[self.offsets[number] : self.offsets[number + 1]] for number in numbers]
        first, *others = sorted(range(len(lists)), key=lambda at: len(lists[at]))
        starts = lists[first] - np.int32(first)
        for at in others:
            wanted = starts + np.int32(at)
            nearest = np.minimum(np.searchsorted(lists[at], wanted), len(lists[at]) - 1)
            starts = starts[lists[at][nearest] == wanted]
        fields = np.searchsorted(self.field_starts, starts, side="right") - 1
        rows, at_row = np.unique(fields // _FIELDS, return_inverse=True)
        counts = np.bincount(at_row, _WEIGHTS[fields % _FIELDS], len(rows))
        return rows.astype(np.int32), counts.astype(np.float32)

    def to_stream(self) -> TermStream:
        """Inverse of `build_positions`."""
        # The last field may be empty. A gap follows it in any case.
        size = max(int(self.places.max(initial=-1)) + 1, int(self.field_starts.max(initial=-1))) + 1
        numbers = np.full(size, _GAP, np.int32)
        numbers[self.places] = np.repeat(np.arange(len(self.offsets) - 1, dtype=np.int32), np.diff(self.offsets))
        return TermStream(numbers, np.asarray(self.field_starts))


def build_positions(stream: TermStream, term_count: int) -> Positions | None:
    """Build the positions of terms 0 to `term_count` - 1. Returns None for a stream that is too long."""
    if len(stream.numbers) > _MAX_POSITIONS:
        return None
    # Sorted in place, by term and then position, in one array.
    keys = stream.numbers.astype(np.int64)
    keys <<= 32
    keys |= np.arange(len(keys))
    keys = keys[stream.numbers != _GAP]
    keys.sort()
    offsets = np.searchsorted(keys, np.arange(term_count + 1, dtype=np.int64) << 32)
    keys &= 0xFFFFFFFF
    return Positions(keys.astype(np.int32), offsets.astype(np.int64), stream.field_starts)


# Postings.

RowNumbers = NDArray[np.int32]

_AFTER_ANY_TERM = b"\xff"
"""No UTF-8 text contains this byte, so a prefix followed by it sorts after every term with the prefix."""

_MAX_KNOWN_NUMBERS = 4_096


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Terms in the order of their UTF-8 bytes. The number of a term is its position in that order."""

    text: memoryview
    ends: memoryview
    """The end offset of each term in `text`, as 64-bit integers."""
    known_numbers: dict[str, int | None] = field(default_factory=dict, repr=False, compare=False)
    """The results of `find_number`. A search needs those of each term several times."""

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
        """Return the number of a term, or None if no page contains it."""
        known = self.known_numbers
        try:
            return known[term]
        except KeyError:
            if len(known) >= _MAX_KNOWN_NUMBERS:
                known.clear()
        encoded = term.encode()
        number = self._find_position(encoded)
        known[term] = found = number if number < len(self) and self._get_bytes(number) == encoded else None
        return found

    def find_prefix_range(self, prefix: str) -> tuple[int, int]:
        """Return the half-open range of the numbers of all terms with the prefix."""
        encoded = prefix.encode()
        return self._find_position(encoded), self._find_position(encoded + _AFTER_ANY_TERM)

    def _find_position(self, encoded: bytes) -> int:
        return bisect_left(range(len(self)), encoded, key=self._get_bytes)

    def _get_bytes(self, number: int) -> bytes:
        start = self.ends[number - 1] if number else 0
        return self.text[start : self.ends[number]].tobytes()


def make_vocabulary(terms: Iterable[str]) -> Vocabulary:
    """Build a vocabulary in memory from sorted terms."""
    encoded = [term.encode() for term in terms]
    ends = np.cumsum([len(term) for term in encoded], dtype=np.int64)
    return Vocabulary(memoryview(b"".join(encoded)), memoryview(ends.tobytes()).cast("q"))


@dataclass(frozen=True, slots=True)
class Postings:
    """Immutable arrays, in memory or mapped from a file. A row is a page; rows are sorted by page id.

    The rows of term t are `rows[offsets[t]:offsets[t + 1]]`, ascending. `counts` has at the same positions how often
    the page contains the term, each occurrence multiplied by the weight of its field.
    """

    version: int
    terms: Vocabulary
    offsets: IntArray
    rows: RowNumbers
    counts: FloatArray
    page_ids: IntArray
    lengths: IntArray
    """The number of terms of each page, over all fields."""
    positions: Positions | None = None
    """None if the postings cannot find phrases."""

    def find_rows(self, page_ids: IntArray) -> IntArray:
        """Return the rows of these pages. Unknown ids are ignored."""
        positions = np.searchsorted(self.page_ids, page_ids)
        positions = positions[positions < len(self.page_ids)] if len(self.page_ids) else positions[:0]
        return np.asarray(positions[np.isin(self.page_ids[positions], page_ids)], np.int64)


def build_postings(
    version: int,
    terms: Sequence[str],
    triples: tuple[RowNumbers, RowNumbers, FloatArray],
    page_ids: IntArray,
    lengths: IntArray,
    stream: TermStream | None = None,
) -> Postings:
    """Build postings from unsorted triples (number in `terms`, row, count), without terms that have no triple.

    `stream` has the terms of each row in order, if the postings shall find phrases.
    """
    numbers, rows, counts = triples
    page_counts = np.bincount(numbers, minlength=len(terms))
    by_text = sorted(np.flatnonzero(page_counts).tolist(), key=terms.__getitem__)
    new_numbers = np.zeros(len(terms), np.int32)
    new_numbers[by_text] = np.arange(len(by_text), dtype=np.int32)
    order = np.lexsort((rows, new_numbers[numbers]))
    offsets = np.zeros(len(by_text) + 1, np.int64)
    np.cumsum(page_counts[by_text], out=offsets[1:])
    sorted_terms = make_vocabulary(terms[number] for number in by_text)
    positions = None
    if stream is not None:
        # The gap, number -1, stays the gap.
        renumbered = np.append(new_numbers, np.int32(-1))[stream.numbers]
        positions = build_positions(TermStream(renumbered, stream.field_starts), len(by_text))
    return Postings(version, sorted_terms, offsets, rows[order], counts[order], page_ids, lengths, positions)


class PostingsBuilder:
    """Builds postings from pages in any order, each added once. Takes about thirty bytes per posting.

    Positions take about thirty bytes more per word of the pages.
    """

    def __init__(self, *, with_positions: bool = False) -> None:
        self._term_numbers: defaultdict[str, int] = defaultdict()
        # A new term gets the next number, without a Python function call.
        self._term_numbers.default_factory = self._term_numbers.__len__
        self._terms = array("i")
        self._counts = array("f")
        self._page_ids = array("q")
        self._lengths = array("q")
        self._distinct_counts = array("q")
        self._stream = TermStreamBuilder(self._term_numbers.__getitem__) if with_positions else None

    def add_all(self, rows: Iterable[KeywordRow]) -> None:
        for row in rows:
            self.add(row)

    def add(self, row: KeywordRow) -> None:
        counts, length = count_weighted_terms(row.terms)
        self._terms.extend(map(self._term_numbers.__getitem__, counts))
        self._counts.extend(counts.values())
        self._page_ids.append(row.page_id)
        self._lengths.append(length)
        self._distinct_counts.append(len(counts))
        if self._stream is not None:
            self._stream.add(row.terms)

    def build(self, version: int) -> Postings:
        page_ids = np.array(self._page_ids, np.int64)
        by_id = np.argsort(page_ids, kind="stable")
        row = np.empty(len(by_id), np.int32)
        row[by_id] = np.arange(len(by_id), dtype=np.int32)
        rows = np.repeat(row, np.array(self._distinct_counts, np.int64))
        triples = np.array(self._terms, np.int32), rows, np.array(self._counts, np.float32)
        lengths = np.array(self._lengths, np.int64)
        stream = self._stream.build().select_rows(by_id) if self._stream is not None else None
        return build_postings(version, list(self._term_numbers), triples, page_ids[by_id], lengths[by_id], stream)
