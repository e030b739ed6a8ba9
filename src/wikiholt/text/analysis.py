"""The analyser behind the keyword index: from text to terms, the same for every store.

One Analyser serves all threads: its memo is a plain dict (atomic in CPython) and the stemmer, which is not safe to
share, is only called under a lock, once for each new word. What the memo holds, or has just forgotten, changes how long
an answer takes and never the answer.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from threading import Lock

import Stemmer

from wikiholt.text.identifiers import joined
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
_SHARP = r"(?:(?<=\b[a-zA-Z])(?<![.\-'’·][a-zA-Z])(?:\+\+|#)(?!\w))?"
TOKEN = re.compile(rf"\w++(?>(?:[.\-'’·]\w++|[{_MARKS}]++\w*+){{0,99999}}){_SHARP}")
_ASCII_TOKEN = re.compile(rf"\w++(?>(?:[.\-']\w++){{0,99999}}){_SHARP}", re.ASCII)
_RUN = re.compile(rf"([{_DENSE}]+)|[^{_DENSE}]+")
_PARTS = re.compile(rf"(?:[^\W_]|[{_MARKS}])+")
_CAMEL = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_CAMEL_CASE = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_POSSESSIVE = re.compile(r"['’][sS]$")
_ELISION = re.compile(r"['’]")
# Each of these is a word in places, or a noun that the next letter's particle hides in the pair of both.
_WORD_ALONE = re.compile("[\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]")
_LETTERS = re.compile(rf"(?:[^\W\d_]|[{_MARKS}])+")
# Letters that Unicode knows no accent to take off from, by what is typed where a keyboard lacks them; and letters that
# have two codes.
_PLAIN_LETTERS = str.maketrans("øłđðħı\u0671\u06cc\u0649\u06a9", "olddhi\u0627\u064a\u064a\u0643") | str.maketrans(
    {"æ": "ae", "œ": "oe", "þ": "th", "\u0640": ""}
)

_Read = tuple[tuple[str, ...], tuple[str, ...]]
"""A token's terms, and what else it may be found by: the words that differ from their stems, characters of pairs."""


class Analyser:
    """Turns text into terms of one language."""

    def __init__(self, language: str) -> None:
        try:
            self._stemmer = Stemmer.Stemmer(language, 0)
        except KeyError:
            self._stemmer = None
        # English has no ending with an accent; other stemmers know theirs only as they are written.
        self._accents_count = self._stemmer is not None and language not in {"english", "en", "porter"}
        self._dotless = language in {"turkish", "tr"}
        self._lock = Lock()
        self._memo: dict[str, _Read] = {}

    def terms(self, text: str) -> list[str]:
        """Every term of the text, in order."""
        out: list[str] = []
        for token in _tokens(text):
            out.extend(self._read(token)[0])
        return out

    def field(self, text: str) -> list[str]:
        """Every term of the text, in order, then once each what else it may be found by.

        Those are words that differ from their stems, so that a word is found by any beginning of it, also one longer
        than its stem; single characters, where terms are pairs of them; and what signs join, such as /etc/hosts.
        """
        tokens = _tokens(text)
        read = {token: self._read(token) for token in dict.fromkeys(tokens)}
        out: list[str] = []
        for token in tokens:
            out.extend(read[token][0])
        forms = dict.fromkeys(form for _, forms in read.values() for form in forms)
        out.extend(forms | dict.fromkeys(joined(text)))
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
                return self._dense(runs)
        words = list(_words(token))
        stems = tuple(self._stem(word, folded) for word, folded in words)
        if len(token) > LONGEST_TERM:
            return stems, ()
        forms = tuple(
            form for (word, folded), stem in zip(words, stems, strict=True) for form in self._forms(word, folded, stem)
        )
        if len(self._memo) >= _MOST_REMEMBERED:
            self._memo.clear()
        self._memo[token] = stems, forms
        return stems, forms

    def _dense(self, runs: Iterable[tuple[bool, str, int]]) -> _Read:
        terms: list[str] = []
        forms: list[str] = []
        for dense, run, _ in runs:
            if dense:
                terms += bigrams(run)
                forms += _WORD_ALONE.findall(run) if len(run) > 1 else ()
            else:
                terms += self.token_terms(run)
                forms += self.token_forms(run)
        return tuple(terms), tuple(forms)

    def _stem(self, word: str, folded: str) -> str:
        if not self._accents_count:
            return self._stemmed(folded)
        if self._dotless:
            word = word.replace("İ", "i").replace("I", "ı")
        return fold(self._stemmed(unicodedata.normalize("NFC", word.lower()))) or folded

    def _forms(self, word: str, folded: str, stem: str) -> Iterator[str]:
        """What else a word is found by: as it is written, and by the stem of one who types it without accents."""
        if folded != stem:
            yield folded
        if self._accents_count and word != folded and (bare_stem := fold(self._stemmed(folded))) not in (stem, folded):
            yield bare_stem

    def _stemmed(self, word: str) -> str:
        lettered = word.isalpha() or (self._accents_count and _LETTERS.fullmatch(word))
        if self._stemmer is None or not lettered:
            return word
        with self._lock:
            return str(self._stemmer.stemWord(word)) or word


class ManyAnalysers:
    """Reads words in several languages at once, for whoever compares a text with a query and not with the index."""

    def __init__(self, languages: Sequence[str]) -> None:
        self._each = [analyser(language) for language in languages]

    def terms(self, text: str) -> list[str]:
        return [*dict.fromkeys(term for each in self._each for term in each.terms(text))]

    def token_terms(self, token: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term for each in self._each for term in each.token_terms(token)))

    def token_forms(self, token: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form for each in self._each for form in each.token_forms(token)))


@lru_cache(maxsize=64)
def analyser(language: str) -> Analyser:
    """The analyser of a language, or of the first of several; one without a stemmer keeps its words as they are."""
    return Analyser(languages_of(language)[0])


@lru_cache(maxsize=64)
def reader(language: str) -> Analyser | ManyAnalysers:
    """What reads words in a language, or in each of several."""
    languages = languages_of(language)
    return ManyAnalysers(languages) if len(languages) > 1 else analyser(language)


def languages_of(language: str) -> list[str]:
    """The languages of a wiki that has several, which are written as one: its own first, joined by plus signs."""
    return language.split("+")


def joined_languages(own: str, further: Iterable[str]) -> str:
    """A wiki's languages written as one, however the further ones were ordered."""
    return "+".join((own, *sorted(set(further) - {own})))


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
    return unicodedata.normalize("NFKC", decomposed.translate(_PLAIN_LETTERS))


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


def _words(token: str) -> Iterator[tuple[str, str]]:
    """The parts of a token, then the token whole where it has more than one part; each as written and folded."""
    token = _POSSESSIVE.sub("", token)
    if "'" in token or "’" in token:
        for piece in _ELISION.split(token):
            yield from _words(piece)
        return
    if not token.strip("_.-·"):
        return
    if token[-1] in "+#":
        yield token, token.lower()
        return
    parts = [token] if token.isalnum() else _PARTS.findall(token)
    if len(token) <= LONGEST_TERM and _CAMEL_CASE.search(token):
        parts = [piece for part in parts for piece in (_CAMEL.findall(part) if _CAMEL_CASE.search(part) else [part])]
    words = [(part, folded) for part in parts if (folded := fold(part))]
    yield from words
    stripped = token.strip("_.-·")
    whole = fold(stripped)
    if whole and [folded for _, folded in words] != [whole]:
        yield stripped, whole
