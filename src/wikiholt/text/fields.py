"""The fields of the keyword index and how much a word in each counts, the same in every store."""

import math
from collections import Counter

from wikiholt.model import PageTerms

FIELD_WEIGHTS: tuple[float, float, float] = (5.0, 2.0, 1.0)
"""Name, headings, body."""

K1 = 1.2
B = 0.75
"""BM25's constants, those of FTS5, so that a cache gives the scores the store gives."""

PREFIX_WEIGHT = 0.5
"""What a page counts that only holds a word beginning with the last word typed."""

RELATED_TERM_WEIGHT = 0.5
"""What a word counts that is made of a word of the query, or that the query's word is made of."""

JOINERS = "\u200c\u200d"
"""Some scripts write them inside a word; FTS5 splits at them as it does at spaces."""
_JOINERS_TO_SPACES = str.maketrans(dict.fromkeys(JOINERS, " "))


def split_terms(text: str) -> list[str]:
    """The terms of a field, as FTS5 splits it."""
    return text.split() if text.isascii() else text.translate(_JOINERS_TO_SPACES).split()


def count_weighted_terms(page_terms: PageTerms) -> tuple[dict[str, float], int]:
    """How often a page has each term, by weight of the field, and how many terms it has in all."""
    counts: dict[str, float] = {}
    length = 0
    for text, weight in zip((page_terms.name, page_terms.headings, page_terms.body), FIELD_WEIGHTS, strict=True):
        terms = split_terms(text)
        length += len(terms)
        for term, count in Counter(terms).items():
            counts[term] = counts.get(term, 0.0) + count * weight
    return counts, length


def compute_idf(pages: int, matching_pages: int) -> float:
    """How telling a term is that so many pages of all hold; FTS5's formula, which never lets it be zero."""
    value = math.log((pages - matching_pages + 0.5) / (matching_pages + 0.5))
    return value if value > 0 else 1e-6


def compute_max_score(pages: int, matching_pages: int) -> float:
    """What a term can add to a page's BM25 score at most."""
    return compute_idf(pages, matching_pages) * (K1 + 1)
