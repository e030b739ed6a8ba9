"""The fields of the keyword index and how much a word in each counts, the same in every store."""

import math

FIELD_WEIGHTS: tuple[float, float, float] = (5.0, 2.0, 1.0)
"""Name, headings, body."""

K1 = 1.2
B = 0.75
"""BM25's constants, those of FTS5, so that a cache gives the scores the store gives."""

PREFIX_WEIGHT = 0.5
"""What a page counts that only holds a word beginning with the last word typed."""


def idf(pages: int, holding: int) -> float:
    """How telling a term is that so many pages of all hold; FTS5's formula, which never lets it be zero."""
    value = math.log((pages - holding + 0.5) / (holding + 0.5))
    return value if value > 0 else 1e-6


def most(pages: int, holding: int) -> float:
    """What a term can add to a page's BM25 score at most."""
    return idf(pages, holding) * (K1 + 1)
