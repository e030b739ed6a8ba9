"""Postings: the sorted terms of pages, and for each term the pages that contain it. In memory, or mapped from a file.

Terms are found by a binary search over the mapped bytes, which takes about four microseconds and no memory. A dict of a
hundred thousand terms would take ten megabytes and delay every opening.
"""

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray

PostingList = tuple[NDArray[np.int32], FloatArray]
"""The rows that contain a term, ascending, and its count in each."""

_AFTER_ANY_TERM = b"\xff"
"""No UTF-8 text contains this byte, so a prefix followed by it sorts after every term with the prefix."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Terms in the order of their UTF-8 bytes. The number of a term is its position in that order."""

    text: NDArray[np.uint8]
    ends: IntArray
    """The end offset of each term in `text`."""

    def get_term(self, number: int) -> str:
        return self._get_bytes(number).decode()

    def find_number(self, term: str) -> int | None:
        encoded = term.encode("utf-8", "surrogatepass")
        number = self._find_position(encoded)
        return number if number < len(self.ends) and self._get_bytes(number) == encoded else None

    def find_prefix_range(self, prefix: str) -> tuple[int, int]:
        """Return the half-open range of the numbers of all terms with the prefix."""
        encoded = prefix.encode("utf-8", "surrogatepass")
        return self._find_position(encoded), self._find_position(encoded + _AFTER_ANY_TERM)

    def find_suffix(self, suffix: str) -> IntArray:
        """Return the numbers of all terms with the suffix, by comparing the last bytes of all terms at once."""
        encoded = suffix.encode("utf-8", "surrogatepass")
        numbers = np.flatnonzero(np.diff(self.ends, prepend=0) >= len(encoded))
        for distance, byte in enumerate(reversed(encoded), 1):
            numbers = numbers[self.text[self.ends[numbers] - distance] == byte]
        return numbers

    def _find_position(self, encoded: bytes) -> int:
        return bisect_left(range(len(self.ends)), encoded, key=self._get_bytes)

    def _get_bytes(self, number: int) -> bytes:
        start = self.ends[number - 1] if number else 0
        return self.text[start : self.ends[number]].tobytes()


def make_vocabulary(terms: Iterable[str]) -> Vocabulary:
    """Build a vocabulary in memory from sorted terms."""
    encoded = [term.encode() for term in terms]
    ends = np.cumsum([len(term) for term in encoded], dtype=np.int64)
    return Vocabulary(np.frombuffer(b"".join(encoded), np.uint8), ends)


@dataclass(frozen=True, slots=True)
class Postings:
    """Immutable arrays. A row is a page; rows are sorted by page id.

    The rows of term t are `rows[offsets[t]:offsets[t + 1]]`, ascending. `counts` has at the same positions how often
    the page contains the term, each occurrence multiplied by the weight of its field.
    """

    terms: Vocabulary
    offsets: IntArray
    rows: NDArray[np.int32]
    counts: FloatArray
    page_keys: IntArray
    """As `KeywordSnapshot` has them."""
    lengths: IntArray
    """The number of terms of each page, over all fields."""

    def find_list(self, term: str) -> PostingList:
        number = self.terms.find_number(term)
        return self._get_lists(0, 0) if number is None else self._get_lists(number, number + 1)

    def find_prefix_lists(self, prefix: str) -> PostingList:
        """Return the lists of all terms with the prefix, one after the other."""
        return self._get_lists(*self.terms.find_prefix_range(prefix))

    def _get_lists(self, first: int, last: int) -> PostingList:
        span = slice(int(self.offsets[first]), int(self.offsets[last]))
        return self.rows[span], self.counts[span]


class PageCounts(NamedTuple):
    """The weighted count of each term of a page, and the number of its terms."""

    key: int
    counts: Mapping[str, float]
    length: int


def build_postings(pages: Iterable[PageCounts]) -> Postings:
    """Build postings from pages in the order of their ids. Takes about thirty bytes per posting."""
    numbers: defaultdict[str, int] = defaultdict()
    # A new term gets the next number, without a Python function call.
    numbers.default_factory = numbers.__len__
    term_numbers, counts = array("i"), array("f")
    keys, lengths, sizes = array("q"), array("q"), array("q")
    for page in pages:
        term_numbers.extend(map(numbers.__getitem__, page.counts))
        counts.extend(page.counts.values())
        keys.append(page.key)
        lengths.append(page.length)
        sizes.append(len(page.counts))
    terms = sorted(numbers)
    places = np.empty(len(terms), np.int32)
    places[[numbers[term] for term in terms]] = np.arange(len(terms), dtype=np.int32)
    by_term = places[np.array(term_numbers, np.int32)]
    order = np.argsort(by_term, kind="stable")  # the rows of a term stay in order
    offsets = np.zeros(len(terms) + 1, np.int64)
    np.cumsum(np.bincount(by_term, minlength=len(terms)), out=offsets[1:])
    rows = np.repeat(np.arange(len(keys), dtype=np.int32), np.array(sizes, np.int64))
    return Postings(
        make_vocabulary(terms),
        offsets,
        rows[order],
        np.array(counts, np.float32)[order],
        np.array(keys, np.int64),
        np.array(lengths, np.int64),
    )
