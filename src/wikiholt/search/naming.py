"""How far a query names a page: the words it and the page's name have in common."""

from collections.abc import Iterable

from wikiholt.model import WordQuery
from wikiholt.text.queries import telling_terms

_MOST_REMEMBERED = 20_000


class Naming:
    """Compares queries with names of one wiki's pages. Safe to use from many threads: it only remembers."""

    def __init__(self, language: str) -> None:
        self._language = language
        self._known: dict[str, frozenset[str]] = {}

    def likeness(self, query: WordQuery, names: Iterable[str]) -> list[float]:
        """For each name, how much of all telling words, its own and the query's, both have; 1 for the same words."""
        asked = frozenset((*query.terms, *(term for phrase in query.phrases for term in phrase)))
        return [_shared(asked, self._terms(name)) for name in names]

    def _terms(self, name: str) -> frozenset[str]:
        terms = self._known.get(name)
        if terms is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            terms = self._known[name] = telling_terms(name, self._language)
        return terms


def _shared(asked: frozenset[str], name: frozenset[str]) -> float:
    return 2 * len(asked & name) / (len(asked) + len(name)) if asked and name else 0.0
