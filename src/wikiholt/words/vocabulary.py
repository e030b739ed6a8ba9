"""The terms of an inverted index, sorted, looked up where they lie.

A binary search over the mapped bytes costs about four microseconds a term and no memory; a dict of a hundred thousand
terms would cost some ten megabytes and a pause at every opening.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

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
