"""How far a query names a page: the words it and the page's name have in common."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from wikiholt.model import StoredPage, WordQuery
from wikiholt.text.analysis import languages_of
from wikiholt.text.queries import telling_terms
from wikiholt.text.readings import Reading

_MOST_REMEMBERED = 20_000
_Name = Mapping[str, frozenset[str]]
"""The words of a name as each language reads it."""


class Naming:
    """Compares queries with the names of one wiki's pages. Safe to use from many threads.

    The words of names are remembered for as long as the index keeps its version.
    """

    def __init__(self, pages: Callable[[Sequence[int]], Mapping[int, StoredPage]], language: str) -> None:
        self._pages = pages
        self._languages = languages_of(language)
        self._known: tuple[int, dict[int, _Name]] = (-1, {})

    def likeness(
        self, query: WordQuery, page_ids: Iterable[int], version: int, others: Sequence[Reading] = ()
    ) -> dict[int, float]:
        """For each page, how much of all telling words of its name and the query both have; 1 for the same words.

        Of `others`, the other ways to read the query, the one counts that has the most in common with the name.
        """
        asked = [(self._languages[0], _terms(query)), *((other.language, _terms(other.query)) for other in others)]
        names = self._names(set(page_ids), version) if asked[0][1] else {}
        return {
            page_id: max(shared(terms, name[language]) for language, terms in asked) for page_id, name in names.items()
        }

    def _names(self, page_ids: set[int], version: int) -> dict[int, _Name]:
        known = self._known
        if known[0] != version or len(known[1]) > _MOST_REMEMBERED:
            known = self._known = (version, {})
        found = {page_id: name for page_id in page_ids if (name := known[1].get(page_id)) is not None}
        lacking = self._pages(sorted(page_ids - found.keys())) if len(found) < len(page_ids) else {}
        fresh = {
            page_id: {each: telling_terms(page.name, each) for each in self._languages}
            for page_id, page in lacking.items()
        }
        known[1].update(fresh)
        return found | fresh


def _terms(query: WordQuery) -> frozenset[str]:
    return frozenset((*query.terms, *(term for phrase in query.phrases for term in phrase)))


def shared(asked: frozenset[str], name: frozenset[str]) -> float:
    """The part of the words of both that each has."""
    return 2 * len(asked & name) / (len(asked) + len(name)) if asked and name else 0.0
