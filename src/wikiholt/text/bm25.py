"""The fields of the keyword index and how much a word in each counts, the same in every store."""

import math
import re
from collections import Counter

from wikiholt.domain.page import Page, PageTerms
from wikiholt.text.analysis import get_analyser
from wikiholt.text.keyword_query import parse_query
from wikiholt.text.languages import detect_page_language

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


# The keyword index's view of pages and queries. Terms hold no whitespace; every store indexes the same ones.


__all__ = ["build_page_terms", "parse_query", "to_terms"]

_LINK_TARGET = re.compile(r"\]\([^()\s]*+(?>(?:\([^()\s]*+\)[^()\s]*+){0,9999})")
_URL_SCHEME = re.compile(r"https?://(?:www\.)?")


def to_terms(text: str, language: str = "english") -> list[str]:
    """The terms of a text, in order: no case, accents or endings; identifiers whole and in parts; CJK in pairs."""
    return get_analyser(language).to_terms(text)


def build_page_terms(page: Page, language: str = "english") -> PageTerms:
    """A page as the keyword index holds it, stemmed in its own language where its wiki has several.

    Each field holds its terms in order and then, once each, the words that differ from their stems, so that a word can
    be found by any beginning of it. `name` covers name, path and tags; `body` has the description before the text, and
    no link targets.
    """
    spoken = detect_page_language(page, language)
    body = _LINK_TARGET.sub("]", page.body) if "](" in page.body else page.body
    body = _URL_SCHEME.sub("", body) if "://" in body else body
    return PageTerms(
        name=_build_field("\n".join((page.name, page.path.replace("/", "\n"), *page.metadata.tags)), spoken),
        headings=_build_field("\n".join(heading.text for heading in page.headings), spoken),
        body=_build_field(f"{page.metadata.description or ''}\n{body}", spoken),
    )


def _build_field(text: str, language: str) -> str:
    return " ".join(get_analyser(language).to_field_terms(text))
