"""How far a query names a page: the words it and the page's name have in common."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from wikiholt.domain.search import KeywordQuery, StoredPage
from wikiholt.text.analysis import split_languages
from wikiholt.text.keyword_query import QueryVariant, get_significant_terms

_MAX_CACHED_TITLES = 20_000
_TitleTerms = Mapping[str, frozenset[str]]
"""The words of a name as each language reads it."""


class TitleMatcher:
    """Compares queries with the names of one wiki's pages. Safe to use from many threads.

    The words of names are remembered for as long as the index keeps its version.
    """

    def __init__(self, get_pages: Callable[[Sequence[int]], Mapping[int, StoredPage]], language: str) -> None:
        self._get_pages = get_pages
        self._languages = split_languages(language)
        self._cache: tuple[int, dict[int, _TitleTerms]] = (-1, {})

    def score_titles(
        self, query: KeywordQuery, page_ids: Iterable[int], version: int, variants: Sequence[QueryVariant] = ()
    ) -> dict[int, float]:
        """For each page, how much of all telling words of its name and the query both have; 1 for the same words.

        Of `others`, the other ways to read the query, the one counts that has the most in common with the name.
        """
        asked = [
            (self._languages[0], _get_query_terms(query)),
            *((other.language, _get_query_terms(other.query)) for other in variants),
        ]
        names = self._get_titles(set(page_ids), version) if asked[0][1] else {}
        return {
            page_id: max(compute_dice(terms, name[language]) for language, terms in asked)
            for page_id, name in names.items()
        }

    def _get_titles(self, page_ids: set[int], version: int) -> dict[int, _TitleTerms]:
        known = self._cache
        if known[0] != version or len(known[1]) > _MAX_CACHED_TITLES:
            known = self._cache = (version, {})
        found = {page_id: name for page_id in page_ids if (name := known[1].get(page_id)) is not None}
        lacking = self._get_pages(sorted(page_ids - found.keys())) if len(found) < len(page_ids) else {}
        fresh = {
            page_id: {each: get_significant_terms(page.name, each) for each in self._languages}
            for page_id, page in lacking.items()
        }
        known[1].update(fresh)
        return found | fresh


def _get_query_terms(query: KeywordQuery) -> frozenset[str]:
    return frozenset((*query.terms, *(term for phrase in query.phrases for term in phrase)))


def compute_dice(query_terms: frozenset[str], title_terms: frozenset[str]) -> float:
    """The part of the words of both that each has."""
    return (
        2 * len(query_terms & title_terms) / (len(query_terms) + len(title_terms))
        if query_terms and title_terms
        else 0.0
    )
