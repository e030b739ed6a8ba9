"""Words made of words, in languages that write them as one: a Kaffeemaschine is a Maschine.

The dictionary is the wiki's own terms: no others could find anything. Nothing is done to the index, so what counts as a
part may change with every page.
"""

from collections.abc import Iterator, Sequence

from wikiholt.domain.protocols import Lexicon
from wikiholt.text.analysis import Analyser, get_analyser, normalize_term, split_languages
from wikiholt.text.languages import get_stopwords

COMPOUNDING_LANGUAGES = frozenset(
    ("danish", "dutch", "estonian", "finnish", "german", "hungarian", "norwegian", "swedish"),
)
"""Languages that write compounds as one word."""

_MIN_PART_CHARS = 4
"""Letters that a part must have; shorter ones are found inside of words they have nothing to do with."""
_MIN_CERTAIN_CHARS = 6
"""Letters of a word beyond which what ends with it has it as a part, whether or not the rest is known."""
_MAX_TOKEN_CHARS, _MAX_TERMS = 64, 64
_MAX_CANDIDATES, _MAX_COMPOUNDS = 100, 12
"""Terms that end with a word: how many are looked at, and how many of those on most pages are taken."""
_LINKING_LETTERS = ("s", "es", "n", "en", "er", "e")


def has_compounds(language: str) -> bool:
    """Whether a language, or one of several, writes words that are made of words."""
    return not COMPOUNDING_LANGUAGES.isdisjoint(split_languages(language))


def find_related_terms(tokens: Sequence[str], language: str, lexicon: Lexicon) -> tuple[str, ...]:
    """Terms of the wiki for words that end with one of these words, or that one of these is made of."""
    found: dict[str, None] = {}
    for each in COMPOUNDING_LANGUAGES.intersection(split_languages(language)):
        parts = _CompoundFinder(each, lexicon)
        for token in tokens:
            if token.isalpha() and len(token) <= _MAX_TOKEN_CHARS:
                found.update(dict.fromkeys((*parts.find_compounds(token), *parts.split_compound(token))))
    return tuple(sorted(found))[:_MAX_TERMS]


class _CompoundFinder:
    """Compounds of one language among the terms of one wiki."""

    def __init__(self, language: str, lexicon: Lexicon) -> None:
        self._analyser: Analyser = get_analyser(language)
        self._stopwords = get_stopwords(language)
        self._lexicon = lexicon

    def find_compounds(self, token: str) -> list[str]:
        """Terms that end with the word: those on most pages first, and no more than a query should carry."""
        stem, word = self._stem(token), normalize_term(token)
        if len(stem) < _MIN_PART_CHARS:
            return []
        good = self._find_by_suffix(stem)
        # A long word may lose more of its end than the short one it ends with; then it is there as it is written.
        if word != stem and len(good) < _MAX_COMPOUNDS:
            good += [term for term in self._find_by_suffix(word) if self._stem(term) not in good]
        return sorted(set(good), key=lambda term: (-self._lexicon.count_pages(term), term))[:_MAX_COMPOUNDS]

    def _find_by_suffix(self, suffix: str) -> list[str]:
        lengths, sure = range(len(suffix) + _MIN_PART_CHARS, _MAX_TOKEN_CHARS + 1), len(suffix) >= _MIN_CERTAIN_CHARS
        found = self._lexicon.find_by_suffix(suffix, _MAX_CANDIDATES, lengths)
        return [term for term in found if term.isalpha() and self._can_begin(term[: -len(suffix)], sure=sure)]

    def split_compound(self, token: str, deep: int = 2) -> list[str]:
        """The terms of the fewest parts of a word that the wiki holds each of; nothing if there are no such parts."""
        word = normalize_term(token)
        found: list[list[str]] = []
        for at in range(_MIN_PART_CHARS, len(word) - _MIN_PART_CHARS + 1):
            head, tail = word[:at], word[at:]
            last = self._find_term(tail)
            if last is None or not self._stopwords.isdisjoint((head, tail)):
                continue
            first = next(filter(None, map(self._find_term, _iter_unlinked_heads(head))), None)
            heads = [first] if first else self.split_compound(head, deep - 1) if deep else []
            if heads:
                found.append([*heads, last])
        return min(
            found, key=lambda parts: (len(parts), -min(map(self._lexicon.count_pages, parts)), parts), default=[]
        )

    def _can_begin(self, head: str, *, sure: bool) -> bool:
        """Whether a compound could begin so: with a word of the wiki, or with anything but a small word."""
        if head in self._stopwords:
            return False
        return sure or any(self._find_term(part) for part in _iter_unlinked_heads(head))

    def _find_term(self, part: str) -> str | None:
        """The term that pages with this word have; None where none has it."""
        return next((term for term in (self._stem(part), part) if self._lexicon.count_pages(term)), None)

    def _stem(self, word: str) -> str:
        return next(iter(self._analyser.get_token_terms(word)), "")


def _iter_unlinked_heads(head: str) -> Iterator[str]:
    """The beginning of a compound, and what it is without the letters that may link it to the rest."""
    yield head
    yield from (
        head[: -len(link)]
        for link in _LINKING_LETTERS
        if head.endswith(link) and len(head) - len(link) >= _MIN_PART_CHARS
    )
