"""Finds the lines of a passage on which a sentence of its display text is written."""

import re
from collections import Counter

_WORD = re.compile(r"\w+")
_MAX_LINES = 20
"""A sentence is looked for on at most this number of lines."""
_FOREIGN_WORD = 0.05
"""How much a word of the lines that is not in the sentence counts against them, relative to one that is."""


def find_lines(passage: str, sentence: str) -> tuple[int, int]:
    """The first and last line of the sentence, from 0: those with most of its words and fewest others."""
    wanted = Counter(_find_words(sentence))
    lines = [_find_words(line) for line in passage.split("\n")]
    best, place = 0.0, (0, 0)
    for first, words in enumerate(lines):
        if wanted.keys().isdisjoint(words):
            continue
        left, score, found = wanted.copy(), 0.0, 0
        for last in range(first, min(len(lines), first + _MAX_LINES)):
            for word in lines[last]:
                is_wanted = left[word] > 0
                left[word] -= is_wanted
                found += is_wanted
                score += 1.0 if is_wanted else -_FOREIGN_WORD
            if score > best:
                best, place = score, (first, last)
            if found == wanted.total():
                break
    return place


def _find_words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
