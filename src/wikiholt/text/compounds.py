"""Words made of words, in languages that write them as one: a Kaffeemaschine is a Maschine.

The dictionary is the wiki's own terms: no others could find anything. Nothing is done to the index, so what counts as a
part may change with every page.
"""

from collections.abc import Iterator, Sequence

from wikiholt.ports import Lexicon
from wikiholt.text.analysis import Analyser, analyser, fold, languages_of
from wikiholt.text.smallwords import small_words

COMPOUNDING = frozenset(
    ("danish", "dutch", "estonian", "finnish", "german", "hungarian", "norwegian", "swedish"),
)
"""Languages that write compounds as one word."""

_SHORTEST = 4
"""Letters that a part must have; shorter ones are found inside of words they have nothing to do with."""
_TELLING = 6
"""Letters of a word beyond which what ends with it has it as a part, whether or not the rest is known."""
_LONGEST, _MOST = 64, 64
_MOST_LOOKED_AT, _MOST_TAKEN = 100, 12
"""Terms that end with a word: how many are looked at, and how many of those on most pages are taken."""
_LINKS = ("s", "es", "n", "en", "er", "e")


def makes_compounds(language: str) -> bool:
    """Whether a language, or one of several, writes words that are made of words."""
    return not COMPOUNDING.isdisjoint(languages_of(language))


def kindred(tokens: Sequence[str], language: str, lexicon: Lexicon) -> tuple[str, ...]:
    """Terms of the wiki for words that end with one of these words, or that one of these is made of."""
    found: dict[str, None] = {}
    for each in COMPOUNDING.intersection(languages_of(language)):
        parts = _Parts(each, lexicon)
        for token in tokens:
            if token.isalpha() and len(token) <= _LONGEST:
                found.update(dict.fromkeys((*parts.compounds(token), *parts.split(token))))
    return tuple(sorted(found))[:_MOST]


class _Parts:
    """Compounds of one language among the terms of one wiki."""

    def __init__(self, language: str, lexicon: Lexicon) -> None:
        self._analyser: Analyser = analyser(language)
        self._small = small_words(language)
        self._lexicon = lexicon

    def compounds(self, token: str) -> list[str]:
        """Terms that end with the word: those on most pages first, and no more than a query should carry."""
        stem, word = self._stem(token), fold(token)
        if len(stem) < _SHORTEST:
            return []
        good = self._ending_with(stem)
        # A long word may lose more of its end than the short one it ends with; then it is there as it is written.
        if word != stem and len(good) < _MOST_TAKEN:
            good += [term for term in self._ending_with(word) if self._stem(term) not in good]
        return sorted(set(good), key=lambda term: (-self._lexicon.pages(term), term))[:_MOST_TAKEN]

    def _ending_with(self, ending: str) -> list[str]:
        lengths, sure = range(len(ending) + _SHORTEST, _LONGEST + 1), len(ending) >= _TELLING
        found = self._lexicon.ending_with(ending, _MOST_LOOKED_AT, lengths)
        return [term for term in found if term.isalpha() and self._begins(term[: -len(ending)], sure=sure)]

    def split(self, token: str, deep: int = 2) -> list[str]:
        """The terms of the fewest parts of a word that the wiki holds each of; nothing if there are no such parts."""
        word = fold(token)
        found: list[list[str]] = []
        for at in range(_SHORTEST, len(word) - _SHORTEST + 1):
            head, tail = word[:at], word[at:]
            last = self._held(tail)
            if last is None or not self._small.isdisjoint((head, tail)):
                continue
            first = next(filter(None, map(self._held, _unlinked(head))), None)
            heads = [first] if first else self.split(head, deep - 1) if deep else []
            if heads:
                found.append([*heads, last])
        return min(found, key=lambda parts: (len(parts), -min(map(self._lexicon.pages, parts)), parts), default=[])

    def _begins(self, head: str, *, sure: bool) -> bool:
        """Whether a compound could begin so: with a word of the wiki, or with anything but a small word."""
        if head in self._small:
            return False
        return sure or any(self._held(part) for part in _unlinked(head))

    def _held(self, part: str) -> str | None:
        """The term that pages with this word have; None where none has it."""
        return next((term for term in (self._stem(part), part) if self._lexicon.pages(term)), None)

    def _stem(self, word: str) -> str:
        return next(iter(self._analyser.token_terms(word)), "")


def _unlinked(head: str) -> Iterator[str]:
    """The beginning of a compound, and what it is without the letters that may link it to the rest."""
    yield head
    yield from (head[: -len(link)] for link in _LINKS if head.endswith(link) and len(head) - len(link) >= _SHORTEST)
