"""Tells which texts are nearly the same: they share nearly all runs of three words, and nearly all numbers.

Needs neither a model nor a language. The limits are from pairs of real wikis: docs/adr/0051-near-duplicates.md.
"""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from wikiholt.domain.index import IntArray
from wikiholt.text.segmentation import CJK_RANGES

SHARED = 0.9
"""The share of their runs, and of their numbers, that two texts have in common. One other word in sixty is nearly the
same, one other number in ten is not."""
MIN_WORDS = 20
"""Shorter texts say too little: half a table row, or a heading that every page has."""

_RUN_WORDS = 3
_ADDRESS = re.compile(r"\]\([^()\s]*+\)|https?://[^\s<>)\]]++")
_WORD = re.compile(rf"[{CJK_RANGES}]|[^\W_{CJK_RANGES}]++")


class Wording(NamedTuple):
    """What is compared of a text."""

    runs: IntArray
    """The sorted hashes of its runs of words. They differ between processes."""
    numbers: Counter[str]


def read_wording(text: str) -> Wording | None:
    """The wording of a text without addresses; None if it is too short to compare."""
    words = _WORD.findall(_ADDRESS.sub("] ", text).casefold())
    if len(words) < MIN_WORDS:
        return None
    runs = np.fromiter(map(hash, zip(words, words[1:], words[2:], strict=False)), np.int64, len(words) - 2)
    return Wording(np.unique(runs), Counter(word for word in words if word[0].isdigit() or word[-1].isdigit()))


def are_nearly_same(one: Wording, other: Wording) -> bool:
    few, many = sorted((len(one.runs), len(other.runs)))
    numbers = (one.numbers & other.numbers).total(), (one.numbers | other.numbers).total()
    if few < SHARED * many or numbers[0] < SHARED * numbers[1]:
        return False
    shared = len(np.intersect1d(one.runs, other.runs, assume_unique=True))
    return shared >= SHARED * (few + many - shared)


class WordingGroups:
    """Texts in groups. A text belongs to the first group whose first text is nearly the same."""

    def __init__(self) -> None:
        self._firsts: list[Wording | None] = []
        self._by_run: dict[int, list[int]] = {}

    def add(self, wording: Wording | None) -> int:
        """The number of the text's group: an earlier one, or else the next. None is never nearly the same."""
        # Of two texts that share that much, one of these runs is in both: no more than the others may be missing.
        rarest = [] if wording is None else wording.runs[: int((1 - SHARED) * len(wording.runs)) + 1].tolist()
        numbers = sorted({number for run in rarest for number in self._by_run.get(run, ())})
        for number in numbers:
            first = self._firsts[number]
            if wording is not None and first is not None and are_nearly_same(first, wording):
                return number
        for run in rarest:
            self._by_run.setdefault(run, []).append(len(self._firsts))
        self._firsts.append(wording)
        return len(self._firsts) - 1
