"""The analyser of the keyword index: text to terms, the same for every store; and identifiers such as /etc/hosts."""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from threading import Lock

import Stemmer

from wikiholt.text.segmentation import CJK_RANGES

_MAX_IDENTIFIER_CHARS = 64
_URL_SCHEME = re.compile(r"https?://(?:www\.)?")
# The possessive quantifiers and atomic groups keep this linear: a failed match is not retried from each letter.
_JOINED_IDENTIFIER = re.compile(
    r"(?<![\w.\-])[.\-]*+(\w[\w.\-]*+(?>(?:[/\\@:]{1,3}+\.?+\w[\w.\-]*+){1,9999}))", re.ASCII
)
# Not inside a word. The lookbehind is after the dot: a pattern that begins with a character is found much faster.
_DOTTED_NAME = re.compile(r"\.(?<!(?u:[\w.])\.)[A-Za-z]\w++", re.ASCII)


def remove_url_schemes(text: str) -> str:
    """The text without `https://` and `www.` of addresses, which say nothing about a page."""
    return _URL_SCHEME.sub("", text) if "://" in text else text


def find_identifiers(text: str) -> list[str]:
    """The identifiers of a text as single terms, lower case, without punctuation at either end."""
    text = remove_url_schemes(text)
    names: list[str] = _JOINED_IDENTIFIER.findall(text)
    names += _DOTTED_NAME.findall(text) if "." in text else ()
    return [term for name in names if len(term := name.rstrip(".-").lower()) <= _MAX_IDENTIFIER_CHARS]


# Text to terms. One Analyser serves all threads: its cache is a plain dict (atomic in CPython), and the stemmer, which
# is not thread-safe, is called under a lock, once for each new word. The cache changes only the time, never the result.

MAX_TERM_CHARS = 64
_MAX_CACHED_TOKENS = 200_000
# marks that belong to the letters around them, in scripts that do not compose into single characters
COMBINING_MARKS = (
    "\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0900-\u0963\u0966-\u0dff"
    + ("\u0e31-\u0e4e\u0eb1-\u0ece\u0f71-\u0fbc\u102b-\u103e\u1056-\u109d\u17b4-\u17d3\u200c\u200d")
)
# scripts written without spaces between words
UNSPACED_SCRIPTS = f"{CJK_RANGES}\u0e00-\u0eff\u1000-\u109f\u1780-\u17d3"
# An alternative that begins with a character is tried only before that character, an optional group after every token.
_SHARP_SUFFIX = r"(?:[+#](?<=\b[a-zA-Z].)(?<![.\-'’·][a-zA-Z].)(?:(?<=#)|\+)(?!\w)|)"
TOKEN_PATTERN = re.compile(rf"\w++(?>(?:[.\-'’·]\w++|[{COMBINING_MARKS}]++\w*+){{0,99999}}){_SHARP_SUFFIX}")
_SCRIPT_RUN_PATTERN = re.compile(rf"([{UNSPACED_SCRIPTS}]+)|[^{UNSPACED_SCRIPTS}]+")
_TOKEN_PART_PATTERN = re.compile(rf"(?:[^\W_]|[{COMBINING_MARKS}])+")
_CAMEL_PART_PATTERN = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+|[^\W\d_A-Za-z]+")
_CAMEL_CASE_PATTERN = re.compile(r"[a-z][A-Z]|[A-Z]{2}[a-z]")
_POSSESSIVE_PATTERN = re.compile(r"['’][sS]$")
_ELISION_PATTERN = re.compile(r"['’]")
# A single such character can be a word, or a noun that forms a bigram with the particle after it.
_ONE_CHARACTER_WORD_PATTERN = re.compile("[\u3400-\u9fff\uac00-\ud7a3\uf900-\ufaff\U00020000-\U0003ffff]")
_LETTERS_PATTERN = re.compile(rf"(?:[^\W\d_]|[{COMBINING_MARKS}])+")
# Letters without a Unicode decomposition, replaced by what is typed on keyboards without them; and letters with two
# code points.
LETTER_REPLACEMENTS = str.maketrans("øłđðħı\u0671\u06cc\u0649\u06a9", "olddhi\u0627\u064a\u064a\u0643") | str.maketrans(
    {"æ": "ae", "œ": "oe", "þ": "th", "\u0640": ""}
)
_REPLACED_LETTERS = frozenset(map(chr, LETTER_REPLACEMENTS))

_TokenTerms = tuple[str, tuple[str, ...]]
"""A token's terms, joined by spaces, and further terms that find it: words that differ from their stems, characters of
bigrams."""
_get_terms, _get_forms = itemgetter(0), itemgetter(1)


class Analyser:
    """Turns text into terms of one language."""

    def __init__(self, language: str) -> None:
        try:
            self._stemmer = Stemmer.Stemmer(language, 0)
        except KeyError:
            self._stemmer = None
        # English endings have no accents; the other stemmers need the accents.
        self._has_significant_accents = self._stemmer is not None and language not in {"english", "en", "porter"}
        self._has_dotless_i = language in {"turkish", "tr"}
        self._lock = Lock()
        self._cache: dict[str, _TokenTerms] = {}

    def to_terms(self, text: str) -> list[str]:
        """All terms of the text, in order."""
        return " ".join(map(_get_terms, self._find_token_terms(_find_tokens(text)))).split()

    def to_field_text(self, text: str) -> str:
        """All terms of the text, in order, followed by further terms that find it, each once; joined by spaces.

        These are words that differ from their stems, so that any prefix of a word finds it, even one longer than its
        stem; single characters where terms are bigrams; and identifiers such as /etc/hosts.
        """
        found = self._find_token_terms(_find_tokens(text))
        forms = chain.from_iterable(filter(None, map(_get_forms, found)))
        field = " ".join((*map(_get_terms, found), *dict.fromkeys(chain(forms, find_identifiers(text)))))
        # A token without terms is between two spaces.
        return " ".join(field.split()) if "  " in f" {field} " else field

    def get_token_terms(self, token: str) -> tuple[str, ...]:
        """The terms of one token of TOKEN_PATTERN."""
        return tuple(self._get_token_terms_cached(unicodedata.normalize("NFKC", token))[0].split())

    def get_token_forms(self, token: str) -> tuple[str, ...]:
        """The words of one token that differ from their stems."""
        return self._get_token_terms_cached(unicodedata.normalize("NFKC", token))[1]

    def find_word_stems(self, text: str) -> dict[str, str]:
        """The term of each word of the text, by the word as a query has it: in lower case, also without accents."""
        stems: dict[str, str] = {}
        for token in dict.fromkeys(_find_tokens(text)):
            for is_unspaced, run, _ in iter_script_runs(token):
                for word, folded in () if is_unspaced else _split_token(run):
                    stems[make_word_key(word)] = self._stem(word, folded)
                    stems.setdefault(folded, normalize_term(self._run_stemmer(folded)))
        return stems

    def _get_token_terms_cached(self, token: str) -> _TokenTerms:
        return self._cache.get(token) or self._analyse_token(token)

    def _find_token_terms(self, tokens: Sequence[str]) -> list[_TokenTerms]:
        return [self._cache.get(token) or self._analyse_token(token) for token in tokens]

    def _analyse_token(self, token: str) -> _TokenTerms:
        if not token.isascii():
            runs = list(iter_script_runs(token))
            if any(is_unspaced for is_unspaced, _, _ in runs):
                return self._analyse_unspaced(runs)
        words = _split_token(token)
        stems = tuple([self._stem(word, folded) for word, folded in words])
        if len(token) > MAX_TERM_CHARS:
            return " ".join(stems), ()
        if self._has_significant_accents:
            forms = tuple(
                form
                for (word, folded), stem in zip(words, stems, strict=True)
                for form in self._iter_forms(word, folded, stem)
            )
        else:
            forms = tuple([folded for (_, folded), stem in zip(words, stems, strict=True) if folded != stem])
        if len(self._cache) >= _MAX_CACHED_TOKENS:
            self._cache.clear()
        self._cache[token] = result = " ".join(stems), forms
        return result

    def _analyse_unspaced(self, runs: Iterable[tuple[bool, str, int]]) -> _TokenTerms:
        terms: list[str] = []
        forms: list[str] = []
        for is_unspaced, run, _ in runs:
            if is_unspaced:
                terms += make_bigrams(run)
                forms += _ONE_CHARACTER_WORD_PATTERN.findall(run) if len(run) > 1 else ()
            else:
                terms += self.get_token_terms(run)
                forms += self.get_token_forms(run)
        return " ".join(terms), tuple(forms)

    def _stem(self, word: str, folded: str) -> str:
        if not self._has_significant_accents:
            return self._run_stemmer(folded)
        if self._has_dotless_i:
            word = word.replace("İ", "i").replace("I", "ı")
        return normalize_term(self._run_stemmer(unicodedata.normalize("NFC", word.lower()))) or folded

    def _iter_forms(self, word: str, folded: str, stem: str) -> Iterator[str]:
        """Further terms of a word: as written, and the stem of its spelling without accents."""
        if folded != stem:
            yield folded
        if word != folded and (unaccented_stem := normalize_term(self._run_stemmer(folded))) not in (stem, folded):
            yield unaccented_stem

    def _run_stemmer(self, word: str) -> str:
        is_word = word.isalpha() or (self._has_significant_accents and _LETTERS_PATTERN.fullmatch(word))
        if self._stemmer is None or not is_word:
            return word
        with self._lock:
            return str(self._stemmer.stemWord(word)) or word


class MultiLanguageAnalyser:
    """Analyses words in several languages at once, for comparing a text with a query; not for the index."""

    def __init__(self, languages: Sequence[str]) -> None:
        self._analysers = [get_analyser(language) for language in languages]

    def to_terms(self, text: str) -> list[str]:
        return [*dict.fromkeys(term for analyser in self._analysers for term in analyser.to_terms(text))]

    def get_token_terms(self, token: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(term for analyser in self._analysers for term in analyser.get_token_terms(token)))

    def get_token_forms(self, token: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(form for analyser in self._analysers for form in analyser.get_token_forms(token)))


@lru_cache(maxsize=64)
def get_analyser(language: str) -> Analyser:
    """The analyser of a language, or of the first of several; without a stemmer it keeps words unchanged."""
    return Analyser(split_languages(language)[0])


@lru_cache(maxsize=64)
def get_query_analyser(language: str) -> Analyser | MultiLanguageAnalyser:
    """The analyser for a language, or for all of several."""
    languages = split_languages(language)
    return MultiLanguageAnalyser(languages) if len(languages) > 1 else get_analyser(language)


def split_languages(language: str) -> list[str]:
    """The languages of a wiki from its setting, in which they are joined by plus signs; the main language is first."""
    return language.split("+")


def join_languages(main_language: str, other_languages: Iterable[str]) -> str:
    """The languages of a wiki as one string, in canonical order."""
    return "+".join((main_language, *sorted(set(other_languages) - {main_language})))


def normalize_term(word: str) -> str:
    """The word in lower case without accents and white space, at most MAX_TERM_CHARS characters."""
    if word.isascii():
        return word.lower()[:MAX_TERM_CHARS]
    return "".join(strip_accents(word).split())[:MAX_TERM_CHARS]


def make_word_key(word: str) -> str:
    """A word in lower case with its accents."""
    return unicodedata.normalize("NFC", word.lower())


def strip_accents(text: str) -> str:
    """A text of any length in lower case without accents."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    characters = set(decomposed)
    for mark in filter(unicodedata.combining, characters):
        decomposed = decomposed.replace(mark, "")
    if not _REPLACED_LETTERS.isdisjoint(characters):
        decomposed = decomposed.translate(LETTER_REPLACEMENTS)
    return unicodedata.normalize("NFKC", decomposed)


def iter_script_runs(token: str) -> Iterator[tuple[bool, str, int]]:
    """The script runs of a token: whether the script has no spaces, the run, and its offset."""
    for match in _SCRIPT_RUN_PATTERN.finditer(token):
        yield match[1] is not None, match[0], match.start()


def make_bigrams(run: str) -> list[str]:
    """All pairs of neighbouring characters; a single character stays as it is."""
    return [run[i : i + 2] for i in range(len(run) - 1)] or [run]


def iter_part_spans(token: str) -> Iterator[tuple[int, int]]:
    """The ranges of the words that a token consists of."""
    for part in _TOKEN_PART_PATTERN.finditer(token):
        if _CAMEL_CASE_PATTERN.search(part[0]):
            start = part.start()
            yield from ((start + piece.start(), start + piece.end()) for piece in _CAMEL_PART_PATTERN.finditer(part[0]))
        else:
            yield part.span()


def _find_tokens(text: str) -> list[str]:
    return TOKEN_PATTERN.findall(unicodedata.normalize("NFKC", text))


def _split_token(token: str) -> list[tuple[str, str]]:
    """The parts of a token, then the full token if it has several parts; each as written and normalized."""
    if token[1:].islower() and token.isascii() and token.isalpha():
        return [(token, normalize_term(token))]
    token = _POSSESSIVE_PATTERN.sub("", token) if token[-1] in "sS" else token
    if "'" in token or "’" in token:
        return [part for piece in _ELISION_PATTERN.split(token) if piece for part in _split_token(piece)]
    stripped = token.strip("_.-·")
    if not stripped:
        return []
    if token[-1] in "+#":
        return [(token, token.lower())]
    parts = [token] if token.isalnum() else _TOKEN_PART_PATTERN.findall(token)
    if len(token) <= MAX_TERM_CHARS and _CAMEL_CASE_PATTERN.search(token):
        parts = [
            piece
            for part in parts
            for piece in (_CAMEL_PART_PATTERN.findall(part) if _CAMEL_CASE_PATTERN.search(part) else [part])
        ]
    words = [(part, folded) for part in parts if (folded := normalize_term(part))]
    full_term = normalize_term(stripped)
    if full_term and [folded for _, folded in words] != [full_term]:
        words.append((stripped, full_term))
    return words
