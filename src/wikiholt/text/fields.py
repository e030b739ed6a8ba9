"""The fields of the keyword index and how much a word in each counts, the same in every store."""

import math
from collections import Counter

from wikiholt.model import Words

FIELD_WEIGHTS: tuple[float, float, float] = (5.0, 2.0, 1.0)
"""Name, headings, body."""

K1 = 1.2
B = 0.75
"""BM25's constants, those of FTS5, so that a cache gives the scores the store gives."""

PREFIX_WEIGHT = 0.5
"""What a page counts that only holds a word beginning with the last word typed."""

KIN_WEIGHT = 0.5
"""What a word counts that is made of a word of the query, or that the query's word is made of."""

JOINERS = "\u200c\u200d"
"""Some scripts write them inside a word; FTS5 splits at them as it does at spaces."""
_APART = str.maketrans(dict.fromkeys(JOINERS, " "))


def split(text: str) -> list[str]:
    """The terms of a field, as FTS5 splits it."""
    return text.split() if text.isascii() else text.translate(_APART).split()


def weigh(words: Words) -> tuple[dict[str, float], int]:
    """How often a page has each term, by weight of the field, and how many terms it has in all."""
    counts: dict[str, float] = {}
    length = 0
    for text, weight in zip((words.name, words.headings, words.body), FIELD_WEIGHTS, strict=True):
        terms = split(text)
        length += len(terms)
        for term, count in Counter(terms).items():
            counts[term] = counts.get(term, 0.0) + count * weight
    return counts, length


def idf(pages: int, holding: int) -> float:
    """How telling a term is that so many pages of all hold; FTS5's formula, which never lets it be zero."""
    value = math.log((pages - holding + 0.5) / (holding + 0.5))
    return value if value > 0 else 1e-6


def most(pages: int, holding: int) -> float:
    """What a term can add to a page's BM25 score at most."""
    return idf(pages, holding) * (K1 + 1)
