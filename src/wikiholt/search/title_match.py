"""Overlap between a query and page titles."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from wikiholt.domain.search import KeywordQuery, StoredPage
from wikiholt.text.analysis import split_languages
from wikiholt.text.keyword_query import QueryVariant, get_significant_terms

_MAX_CACHED_TITLES = 20_000
_TitleTerms = Mapping[str, tuple[frozenset[str], ...]]
"""Language → significant terms of each name of a page."""


class TitleMatcher:
    """Compares queries with the titles of one wiki's pages. Safe to use from many threads.

    The terms of titles are cached for one version of the index.
    """

    def __init__(self, get_pages: Callable[[Sequence[int]], Mapping[int, StoredPage]], language: str) -> None:
        self._get_pages = get_pages
        self._languages = split_languages(language)
        self._cache: tuple[int, dict[int, _TitleTerms]] = (-1, {})

    def score_titles(
        self, query: KeywordQuery, page_ids: Iterable[int], version: int, variants: Sequence[QueryVariant] = ()
    ) -> dict[int, float]:
        """Page id → Dice coefficient of the significant terms of title and query; 1 for equal terms.

        Of the query and its variants, and of the title and the aliases, those with the highest value count.
        """
        queries = [
            (self._languages[0], _get_query_terms(query)),
            *((variant.language, _get_query_terms(variant.query)) for variant in variants),
        ]
        titles = self._get_titles(set(page_ids), version) if queries[0][1] else {}
        overlaps = dict.fromkeys(titles, 0.0)
        for language, terms in queries:
            for page_id, title in titles.items():
                for name in title[language]:
                    if not terms.isdisjoint(name):
                        overlaps[page_id] = max(overlaps[page_id], compute_dice(terms, name))
        return overlaps

    def _get_titles(self, page_ids: set[int], version: int) -> dict[int, _TitleTerms]:
        cached_version, cache = self._cache
        if cached_version != version or len(cache) > _MAX_CACHED_TITLES:
            cache = {}
            self._cache = (version, cache)
        titles = {page_id: title for page_id in page_ids if (title := cache.get(page_id)) is not None}
        missing = self._get_pages(sorted(page_ids - titles.keys())) if len(titles) < len(page_ids) else {}
        new_titles = {
            page_id: {
                language: tuple(get_significant_terms(name, language) for name in (page.name, *page.aliases))
                for language in self._languages
            }
            for page_id, page in missing.items()
        }
        cache.update(new_titles)
        return titles | new_titles


def _get_query_terms(query: KeywordQuery) -> frozenset[str]:
    return frozenset((*query.terms, *(term for phrase in query.phrases for term in phrase)))


def compute_dice(query_terms: frozenset[str], title_terms: frozenset[str]) -> float:
    """The Dice coefficient of two sets of terms."""
    if not query_terms or not title_terms:
        return 0.0
    return 2 * len(query_terms & title_terms) / (len(query_terms) + len(title_terms))
