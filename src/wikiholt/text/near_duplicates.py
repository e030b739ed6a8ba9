"""Tells which texts are nearly the same: they share nearly all runs of three words, and nearly all numbers.

Needs neither a model nor a language. The limits are from pairs of real wikis: docs/adr/0051-near-duplicates.md.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from wikiholt.domain.index import IntArray
from wikiholt.text.segmentation import CJK_RANGES

SHARED = 0.9
"""The share of their runs, and of their numbers, that two texts have in common. One other word in sixty is nearly the
same, one other number in ten is not."""
MIN_WORDS = 20
"""Shorter texts say too little: half a table row, or a heading that every page has."""

_MAX_SAME_NUMBERS = 8
"""Of two texts with this number of numbers or fewer, all must be the same: one of nine is more than a tenth."""
_COUNTERS = 1 << 20
"""Runs with the same counter are counted together, which costs time and changes nothing."""
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

    def __init__(self, wordings: Iterable[Wording] = ()) -> None:
        """`wordings` are those that will be added, if there are many: texts that share a template take no longer."""
        self._firsts: list[Wording | None] = []
        self._by_run: dict[int, list[int]] = {}
        self._counts: IntArray | None = None
        for wording in wordings:
            self._counts = np.zeros(_COUNTERS, np.int64) if self._counts is None else self._counts
            self._counts[wording.runs % _COUNTERS] += 1

    def add(self, wording: Wording | None) -> int:
        """The number of the text's group: an earlier one, or else the next. None is never nearly the same."""
        # Of two texts that share that much, one of these runs is in both: no more than the others may be missing.
        rarest = [] if wording is None else self._find_rarest(wording)
        numbers = sorted({number for run in rarest for number in self._by_run.get(run, ())})
        for number in numbers:
            first = self._firsts[number]
            if wording is not None and first is not None and are_nearly_same(first, wording):
                return number
        for run in rarest:
            self._by_run.setdefault(run, []).append(len(self._firsts))
        self._firsts.append(wording)
        return len(self._firsts) - 1

    def _find_rarest(self, wording: Wording) -> list[int]:
        """Where to look for the text: its rarest runs, each with its numbers if they must be the same."""
        runs = wording.runs
        if self._counts is not None:
            runs = runs[np.argsort(self._counts[runs % _COUNTERS], kind="stable")]
        numbers = hash(frozenset(wording.numbers.items())) if wording.numbers.total() <= _MAX_SAME_NUMBERS else 0
        rarest: list[int] = runs[: int((1 - SHARED) * len(runs)) + 1].tolist()
        return [run ^ numbers for run in rarest]
