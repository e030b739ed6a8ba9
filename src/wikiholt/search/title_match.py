"""Overlap between a query and page titles. The last parts of a page's path belong to its title."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from wikiholt.domain.search import KeywordQuery, StoredPage
from wikiholt.search.ranking import TitleMatch
from wikiholt.text.analysis import split_languages
from wikiholt.text.keyword_query import QueryVariant, get_significant_terms
from wikiholt.text.page_names import FOLDER_PAGES

PATH_PARTS = 3
"""Number of last parts of a path whose words count as words of the title."""

PATH_SHARE = 2 / 3
"""Share of the title with its path in the overlap; the title alone has the rest. See docs/adr/0045."""

_MAX_CACHED_PAGES = 16_000
"""About 30 MB."""
_PATH_SEPARATORS, _WORD_SEPARATORS = re.compile(r"[/.]"), re.compile(r"[-_]+")


class TitleTerms(NamedTuple):
    """The significant terms of a name of a page, and those of the name and the last parts of the path together."""

    name: frozenset[str]
    with_path: frozenset[str]


class _PageTitles(NamedTuple):
    """The terms of each name of a page, by language, and its number of chunks."""

    names: Mapping[str, tuple[TitleTerms, ...]]
    chunks: int


_Cache = tuple[int, dict[int, StoredPage], dict[int, _PageTitles]]


class TitleMatcher:
    """Compares queries with the titles of one wiki's pages. Safe to use from many threads.

    Pages and the terms of their titles are cached for one version of the index.
    """

    def __init__(self, get_pages: Callable[[Sequence[int]], Mapping[int, StoredPage]], language: str) -> None:
        self._read_pages = get_pages
        self._languages = split_languages(language)
        self._cache: _Cache = (-1, {}, {})

    def get_pages(self, page_ids: Collection[int], version: int) -> dict[int, StoredPage]:
        """Those of these pages that are in the index."""
        pages, _ = self._get_cache(version)
        found = {page_id: page for page_id in page_ids if (page := pages.get(page_id)) is not None}
        if len(found) < len(page_ids):
            new_pages = self._read_pages(sorted(set(page_ids) - found.keys()))
            pages.update(new_pages)
            found.update(new_pages)
        return found

    def score_titles(
        self, query: KeywordQuery, page_ids: Collection[int], version: int, variants: Sequence[QueryVariant] = ()
    ) -> dict[int, TitleMatch]:
        """Page id → overlap of the significant terms of title and query (1 for equal terms), and share of the title.

        Of the query and its variants, and of the title and the aliases, those with the highest values count.
        """
        queries = [
            (self._languages[0], _get_query_terms(query)),
            *((variant.language, _get_query_terms(variant.query)) for variant in variants),
        ]
        titles = self._get_titles(page_ids, version) if queries[0][1] else {}
        matches = {page_id: TitleMatch(chunks=title.chunks) for page_id, title in titles.items()}
        for language, terms in queries:
            for page_id, title in titles.items():
                for name in title.names[language]:
                    if not terms.isdisjoint(name.with_path):
                        overlap, share = compute_overlap(terms, name), len(terms & name.with_path) / len(name.with_path)
                        matches[page_id] = matches[page_id].add(overlap, share)
        return matches

    def _get_titles(self, page_ids: Collection[int], version: int) -> dict[int, _PageTitles]:
        _, cached = self._get_cache(version)
        titles = {page_id: title for page_id in page_ids if (title := cached.get(page_id)) is not None}
        if len(titles) < len(page_ids):
            missing = self.get_pages([page_id for page_id in page_ids if page_id not in titles], version)
            new_titles = {page_id: self._analyse_titles(page) for page_id, page in missing.items()}
            cached.update(new_titles)
            titles.update(new_titles)
        return titles

    def _analyse_titles(self, page: StoredPage) -> _PageTitles:
        names = {
            language: tuple(make_title_terms(name, page.path, language) for name in (page.name, *page.aliases))
            for language in self._languages
        }
        return _PageTitles(names, page.chunks)

    def _get_cache(self, version: int) -> tuple[dict[int, StoredPage], dict[int, _PageTitles]]:
        cached_version, pages, titles = self._cache
        if cached_version != version or len(pages) > _MAX_CACHED_PAGES:
            # Other threads may use the old ones, so they are replaced and not cleared. Half of the pages stay.
            pages = dict(list(pages.items())[_MAX_CACHED_PAGES // 2 :]) if cached_version == version else {}
            titles = {page_id: title for page_id, title in titles.items() if page_id in pages}
            self._cache = (version, pages, titles)
        return pages, titles


def _get_query_terms(query: KeywordQuery) -> frozenset[str]:
    return frozenset((*query.terms, *(term for phrase in query.phrases for term in phrase)))


def make_title_terms(name: str, path: str, language: str = "english", path_parts: int = PATH_PARTS) -> TitleTerms:
    """The terms of a name of the page with this path."""
    terms = get_significant_terms(name, language)
    return TitleTerms(terms, terms | get_significant_terms(" ".join(split_path_words(path)[-path_parts:]), language))


def split_path_words(path: str) -> list[str]:
    """The words of each part of a path, without parts that have no letter or say nothing."""
    parts = (part for part in _PATH_SEPARATORS.split(path) if any(map(str.isalpha, part)))
    return [_WORD_SEPARATORS.sub(" ", part).strip() for part in parts if part.casefold() not in FOLDER_PAGES]


def compute_overlap(query_terms: frozenset[str], title: TitleTerms, path_share: float = PATH_SHARE) -> float:
    """The overlap of a query and a title: 1 if their terms are equal, otherwise words of the path count too."""
    by_name = compute_dice(query_terms, title.name)
    if by_name == 1.0 or len(title.with_path) == len(title.name):
        return by_name
    return (1 - path_share) * by_name + path_share * compute_dice(query_terms, title.with_path)


def compute_dice(query_terms: frozenset[str], title_terms: frozenset[str]) -> float:
    """The Dice coefficient of two sets of terms."""
    if not query_terms or not title_terms:
        return 0.0
    return 2 * len(query_terms & title_terms) / (len(query_terms) + len(title_terms))
