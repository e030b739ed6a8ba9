"""The analyser behind the keyword index: from text to terms, the same for every store.

One Analyser serves all threads: its memo is a plain dict (atomic in CPython) and the stemmer, which is not safe to
share, is only called under a lock, once for each new word. What the memo holds, or has just forgotten, changes how long
an answer takes and never the answer.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from threading import Lock

import Stemmer

from wikiholt.text.sentences import CJK

LONGEST_TERM = 64
_MOST_REMEMBERED = 200_000
# signs that belong to the letters around them, in scripts that do not compose into single characters
_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
    + ("\u0e31-\u0e4e\u0eb1-\u0ece\u0f71-\u0fbc\u102b-\u103e\u1056-\u109d\u17b4-\u17d3\u200c\u200d")
)
# scripts written without spaces between words
_DENSE = f"{CJK}\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3"
_SHARP = r"(?:(?<=\b[a-zA-Z])(?<![.\-'’·][a-zA-Z])(?:\+\+|#)(?!\w))?+"
TOKEN = re.compile(rf"\w++(?:[.\-'’·]\w++|[{_MARKS}]++\w*+)*+{_SHARP}")
_ASCII_TOKEN = re.compile(rf"\w++(?:[.\-']\w++)*+{_SHARP}", re.ASCII)
_RUN = re.compile(rf"([{_DENSE}]+)|[^{_DENSE}]+")
_PARTS = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_CAMEL_CASE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_POSSESSIVE = re.compile(r"['’][sS]$")
_ELISION = re.compile(r"['’]")

_Read = tuple[tuple[str, ...], tuple[str, ...]]
"""A token's terms, and those of its words that differ from their stems."""


class Analyser:
    """Turns text into terms of one language."""

    def __init__(self, language: str) -> None:
        try:
            self._stemmer = Stemmer.Stemmer(language, 0)
        except KeyError:
            self._stemmer = None
        self._lock = Lock()
        self._memo: dict[str, _Read] = {}

    def terms(self, text: str) -> list[str]:
        """Every term of the text, in order."""
        out: list[str] = []
        for token in _tokens(text):
            out.extend(self._read(token)[0])
        return out

    def field(self, text: str) -> list[str]:
        """Every term of the text, in order, then once each the words that differ from their stems.

        Those let a word be found by any beginning of it, also one longer than its stem.
        """
        tokens = _tokens(text)
        read = {token: self._read(token) for token in dict.fromkeys(tokens)}
        out: list[str] = []
        for token in tokens:
            out.extend(read[token][0])
        out.extend(dict.fromkeys(form for _, forms in read.values() for form in forms))
        return out

    def token_terms(self, token: str) -> tuple[str, ...]:
        """The terms of one token as TOKEN finds it."""
        return self._read(unicodedata.normalize("NFKC", token))[0]

    def token_forms(self, token: str) -> tuple[str, ...]:
        """The words of one token that differ from their stems."""
        return self._read(unicodedata.normalize("NFKC", token))[1]

    def _read(self, token: str) -> _Read:
        return self._memo.get(token) or self._analyse(token)

    def _analyse(self, token: str) -> _Read:
        if not token.isascii():
            runs = list(dense_runs(token))
            if any(dense for dense, _, _ in runs):
                parts = (bigrams(run) if dense else self.token_terms(run) for dense, run, _ in runs)
                return tuple(term for part in parts for term in part), ()
        words = list(_words(token))
        stems = tuple(self._stem(word) for word in words)
        if len(token) > LONGEST_TERM:
            return stems, ()
        forms = tuple(word for word, stem in zip(words, stems, strict=True) if word != stem)
        if len(self._memo) >= _MOST_REMEMBERED:
            self._memo.clear()
        self._memo[token] = stems, forms
        return stems, forms

    def _stem(self, word: str) -> str:
        if self._stemmer is None or not word.isalpha():
            return word
        with self._lock:
            return str(self._stemmer.stemWord(word)) or word


@lru_cache(maxsize=32)
def analyser(language: str) -> Analyser:
    """The analyser of a language, by name or code; one without a stemmer keeps its words as they are."""
    return Analyser(language)


def fold(word: str) -> str:
    """Case and accents taken off, no white space, at most LONGEST_TERM characters."""
    if word.isascii():
        return word.lower()[:LONGEST_TERM]
    return "".join(bare(word).split())[:LONGEST_TERM]


def bare(text: str) -> str:
    """A text of any length with case and accents taken off."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    for mark in filter(unicodedata.combining, set(decomposed)):
        decomposed = decomposed.replace(mark, "")
    return unicodedata.normalize("NFKC", decomposed)


def dense_runs(token: str) -> Iterator[tuple[bool, str, int]]:
    """The runs of a token, each with whether its script has no spaces, and where it begins."""
    for found in _RUN.finditer(token):
        yield found[1] is not None, found[0], found.start()


def bigrams(run: str) -> list[str]:
    """Each two neighbours of a run of characters; one alone stands for itself."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def _tokens(text: str) -> list[str]:
    if text.isascii():
        return _ASCII_TOKEN.findall(text)
    return TOKEN.findall(unicodedata.normalize("NFKC", text))


def _words(token: str) -> Iterator[str]:
    """The parts of a token, then the token whole where it has more than one part."""
    token = _POSSESSIVE.sub("", token)
    if "'" in token or "’" in token:
        for piece in _ELISION.split(token):
            yield from _words(piece)
        return
    if not token.strip("_.-·"):
        return
    if token[-1] in "+#":
        yield token.lower()
        return
    parts = [token] if token.isalnum() else _PARTS.findall(token)
    if len(token) <= LONGEST_TERM and _CAMEL_CASE.search(token):
        parts = [piece for part in parts for piece in (_CAMEL.findall(part) if _CAMEL_CASE.search(part) else [part])]
    folded = [word for word in map(fold, parts) if word]
    yield from folded
    whole = fold(token.strip("_.-·"))
    if whole and folded != [whole]:
        yield whole
