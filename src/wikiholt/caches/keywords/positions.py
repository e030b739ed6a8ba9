"""Positions of terms, by which the keyword cache finds phrases.

The fields of all pages follow each other in one stream. A gap of one position after each field keeps phrases inside a
field. The positions of a term are sorted, so a phrase is found by a binary search for each occurrence of its rarest
term; the time does not depend on the length of pages.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.page import PageTerms
from wikiholt.text.bm25 import FIELD_WEIGHTS, split_terms

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
        for field in terms.fields:
            self._field_starts.append(len(self._numbers))
            self._numbers.extend(map(self._get_number, split_terms(field)))
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
