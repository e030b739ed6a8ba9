"""Compound words in languages that write them as one: a Kaffeemaschine is a Maschine.

The dictionary consists of the wiki's own terms, since no others can match. The index is not changed, so what counts as
a part may change with every page.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from wikiholt.domain.protocols import Lexicon
from wikiholt.text.analysis import Analyser, get_analyser, normalize_term, split_languages
from wikiholt.text.languages import get_stopwords

COMPOUNDING_LANGUAGES = frozenset(
    ("danish", "dutch", "estonian", "finnish", "german", "hungarian", "norwegian", "swedish"),
)
"""Languages that write compounds as one word."""

_MIN_PART_CHARS = 4
"""Minimum length of a part; shorter words occur inside unrelated words."""
_MIN_CERTAIN_CHARS = 6
"""From this length on, a word at the end of a term counts as a part even if the rest is unknown."""
_MAX_TOKEN_CHARS, _MAX_TERMS = 64, 64
_MAX_CANDIDATES, _MAX_COMPOUNDS = 100, 12
"""Terms that end with a word: how many are checked, and how many of them (those on most pages) are used."""
_MAX_LONGER = 400
"""Terms that begin with a word, the first ones of which are read."""
_LINKING_LETTERS = ("s", "es", "n", "en", "er", "e")


class RelatedTerms(NamedTuple):
    """Terms of words that are related to words of a query. None is both."""

    close: tuple[str, ...] = ()
    """Compounds that end with a word of the query, which are a kind of it, and parts of a compound in the query."""
    longer: tuple[str, ...] = ()
    """Compounds that begin with a word of the query: a Kaffeemaschine has to do with Kaffee."""


def has_compounds(language: str) -> bool:
    """Whether the language, or one of several, writes compounds as one word."""
    return not COMPOUNDING_LANGUAGES.isdisjoint(split_languages(language))


def find_related_terms(
    tokens: Sequence[str], language: str, lexicon: Lexicon, *, first_parts: bool = False
) -> RelatedTerms:
    """Terms of the wiki that are compounds with one of these words at an end, or parts of one of these words.

    `first_parts`: of a word that no page has, the first part is sufficient (Müll of Müllabfuhr).
    """
    close: set[str] = set()
    longer: set[str] = set()
    for name in COMPOUNDING_LANGUAGES.intersection(split_languages(language)):
        finder = _CompoundFinder(name, lexicon)
        for token in tokens:
            if token.isalpha() and len(token) <= _MAX_TOKEN_CHARS:
                parts = finder.split_compound(token) or (finder.find_first_part(token) if first_parts else [])
                close.update(finder.find_compounds(token), parts)
                longer.update(finder.find_longer_compounds(token))
    return RelatedTerms(tuple(sorted(close))[:_MAX_TERMS], tuple(sorted(longer - close))[:_MAX_TERMS])


class _CompoundFinder:
    """Finds compounds of one language among the terms of one wiki."""

    def __init__(self, language: str, lexicon: Lexicon) -> None:
        self._analyser: Analyser = get_analyser(language)
        self._stopwords = get_stopwords(language)
        self._lexicon = lexicon

    def find_compounds(self, token: str) -> list[str]:
        """Terms that end with the word; those on most pages first, at most _MAX_COMPOUNDS."""
        stem, word = self._stem(token), normalize_term(token)
        if len(stem) < _MIN_PART_CHARS:
            return []
        terms = self._find_by_suffix(stem)
        # Stemming may remove more from a long word than from its last part; then the unstemmed form matches.
        if word != stem and len(terms) < _MAX_COMPOUNDS:
            terms += [term for term in self._find_by_suffix(word) if self._stem(term) not in terms]
        return sorted(set(terms), key=lambda term: (-self._lexicon.count_pages(term), term))[:_MAX_COMPOUNDS]

    def find_longer_compounds(self, token: str) -> list[str]:
        """Terms that begin with the word, before another word of the wiki; those on most pages first."""
        stem = self._stem(token)
        if len(stem) < _MIN_PART_CHARS or stem in self._stopwords:
            return []
        lengths = range(len(stem) + _MIN_PART_CHARS, _MAX_TOKEN_CHARS + 1)
        found = self._lexicon.find_by_prefix(stem, _MAX_LONGER, lengths)
        found = sorted(found, key=lambda term: (-self._lexicon.count_pages(term), term))[:_MAX_CANDIDATES]
        terms = (term for term in found if term.isalpha() and self._stem(term) == term)
        return [*islice((term for term in terms if self._can_end(term[len(stem) :])), _MAX_COMPOUNDS)]

    def _find_by_suffix(self, suffix: str) -> list[str]:
        lengths = range(len(suffix) + _MIN_PART_CHARS, _MAX_TOKEN_CHARS + 1)
        is_certain = len(suffix) >= _MIN_CERTAIN_CHARS
        candidates = self._lexicon.find_by_suffix(suffix, _MAX_CANDIDATES, lengths)
        return [
            term
            for term in candidates
            if term.isalpha() and self._can_begin(term[: -len(suffix)], is_certain=is_certain)
        ]

    def split_compound(self, token: str, depth: int = 2) -> list[str]:
        """The terms of the word's parts, if the wiki has each of them, split into as few parts as possible; else []."""
        word = normalize_term(token)
        splits: list[list[str]] = []
        for position in range(_MIN_PART_CHARS, len(word) - _MIN_PART_CHARS + 1):
            head, tail = word[:position], word[position:]
            last = self._find_term(tail)
            if last is None or not self._stopwords.isdisjoint((head, tail)):
                continue
            first = next(filter(None, map(self._find_term, _iter_unlinked_heads(head))), None)
            heads = [first] if first else self.split_compound(head, depth - 1) if depth else []
            if heads:
                splits.append([*heads, last])
        return min(
            splits, key=lambda parts: (len(parts), -min(map(self._lexicon.count_pages, parts)), parts), default=[]
        )

    def find_first_part(self, token: str) -> list[str]:
        """The term of the longest known first part, if the word is neither known nor the start of a known word."""
        word = normalize_term(token)
        if self._find_term(word) or self._lexicon.find_by_prefix(word, 1):
            return []
        heads = (word[:end] for end in range(len(word) - _MIN_PART_CHARS, _MIN_PART_CHARS - 1, -1))
        parts = (part for head in heads for part in _iter_unlinked_heads(head) if part not in self._stopwords)
        return [*islice(filter(None, map(self._find_term, parts)), 1)]

    def _can_begin(self, head: str, *, is_certain: bool) -> bool:
        """Whether a compound can begin with `head`: a word of the wiki; if certain, anything but a stopword."""
        if head in self._stopwords:
            return False
        return is_certain or any(self._find_term(part) for part in _iter_unlinked_heads(head))

    def _can_end(self, tail: str) -> bool:
        """Whether a compound can end with `tail`: a word of the wiki, or one after linking letters."""
        tails = (tail, *(tail[len(link) :] for link in _LINKING_LETTERS if tail.startswith(link)))
        words = (part for part in tails if len(part) >= _MIN_PART_CHARS and part not in self._stopwords)
        return any(map(self._lexicon.count_pages, words))

    def _find_term(self, part: str) -> str | None:
        """The indexed term of this word; None if no page has it."""
        return next((term for term in (self._stem(part), part) if self._lexicon.count_pages(term)), None)

    def _stem(self, word: str) -> str:
        return next(iter(self._analyser.get_token_terms(word)), "")


def _iter_unlinked_heads(head: str) -> Iterator[str]:
    """The head of a compound, and its forms without linking letters."""
    yield head
    yield from (
        head[: -len(link)]
        for link in _LINKING_LETTERS
        if head.endswith(link) and len(head) - len(link) >= _MIN_PART_CHARS
    )
