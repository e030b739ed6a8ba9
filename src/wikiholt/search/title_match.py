"""Overlap between a query and page titles. The last parts of a page's path belong to its title."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wikiholt.domain.search import KeywordQuery, StoredPage
from wikiholt.search.ranking import TitleMatch
from wikiholt.text.keyword_query import QueryVariant, get_significant_terms
from wikiholt.text.page_names import FOLDER_PAGES

PATH_PARTS = 3
"""Number of last parts of a path whose words count as words of the title."""

PATH_SHARE = 2 / 3
"""Share of the title with its path in the overlap; the title alone has the rest. See docs/adr/0049."""

_PATH_SEPARATORS, _WORD_SEPARATORS = re.compile(r"[/.]"), re.compile(r"[-_]+")


class TitleTerms(NamedTuple):
    """The significant terms of a name of a page, and those of the name and the last parts of the path together."""

    name: frozenset[str]
    with_path: frozenset[str]


class IndexedPage(NamedTuple):
    """A page, and by language the terms of each of its names."""

    page: StoredPage
    names: Mapping[str, tuple[TitleTerms, ...]]
    no_match: TitleMatch
    """The match of a query that has no word of its names. Most pages that compete have this one."""


def analyse_names(page: StoredPage, languages: Sequence[str]) -> IndexedPage:
    """The page with the terms of its title and its aliases."""
    names = (page.name, *page.aliases)
    return IndexedPage(
        page,
        {language: tuple([make_title_terms(name, page.path, language) for name in names]) for language in languages},
        TitleMatch(chunks=page.chunks),
    )


def score_titles(
    language: str, query: KeywordQuery, variants: Sequence[QueryVariant], pages: Mapping[int, IndexedPage]
) -> dict[int, TitleMatch]:
    """Page id → overlap of the significant terms of title and query (1 for equal terms), and share of the title.

    Of the query (in this language) and its variants, and of the title and the aliases, those with the highest values
    count.
    """
    queries = [(language, _get_query_terms(query))]
    queries += [(variant.language, _get_query_terms(variant.query)) for variant in variants]
    if not queries[0][1]:
        return {}
    matches = {page_id: page.no_match for page_id, page in pages.items()}
    for of_language, terms in queries:
        for page_id, page in pages.items():
            for name in page.names[of_language]:
                if not terms.isdisjoint(name.with_path):
                    overlap, share, chunks = matches[page_id]
                    matches[page_id] = TitleMatch(
                        max(overlap, compute_overlap(terms, name)),
                        max(share, len(terms & name.with_path) / len(name.with_path)),
                        chunks,
                    )
    return matches


def _get_query_terms(query: KeywordQuery) -> frozenset[str]:
    return frozenset((*query.terms, *(term for phrase in query.phrases for term in phrase)))


def make_title_terms(name: str, path: str, language: str = "english") -> TitleTerms:
    """The terms of a name of the page with this path."""
    terms = get_significant_terms(name, language)
    return TitleTerms(terms, terms | get_significant_terms(" ".join(split_path_words(path)[-PATH_PARTS:]), language))


def split_path_words(path: str) -> list[str]:
    """The words of each part of a path, without parts that have no letter or say nothing."""
    parts = (part for part in _PATH_SEPARATORS.split(path) if any(map(str.isalpha, part)))
    return [_WORD_SEPARATORS.sub(" ", part).strip() for part in parts if part.casefold() not in FOLDER_PAGES]


def compute_overlap(query_terms: frozenset[str], title: TitleTerms) -> float:
    """The overlap of a query and a title: 1 if their terms are equal, otherwise words of the path count too."""
    by_name = compute_dice(query_terms, title.name)
    if by_name == 1.0 or len(title.with_path) == len(title.name):
        return by_name
    return (1 - PATH_SHARE) * by_name + PATH_SHARE * compute_dice(query_terms, title.with_path)


def compute_dice(query_terms: frozenset[str], title_terms: frozenset[str]) -> float:
    """The Dice coefficient of two sets of terms."""
    if not query_terms or not title_terms:
        return 0.0
    return 2 * len(query_terms & title_terms) / (len(query_terms) + len(title_terms))
