"""Keyword queries as people type them: words, "quoted phrases", -word, -"a phrase" and +word."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache

from wikiholt.domain.search import KeywordQuery
from wikiholt.text.analysis import (
    TOKEN_PATTERN,
    Analyser,
    find_identifiers,
    get_analyser,
    iter_script_runs,
    normalize_term,
    split_languages,
)
from wikiholt.text.languages import get_stopword_text
from wikiholt.text.segmentation import CJK_RANGES

MAX_QUERY_CHARS = 2_000
_MAX_TERMS = 64
_PHRASE_PATTERN = re.compile(r"""(?:(?<=\s)|^)(-?)["“”„«]([^"“”„«»]*)["“”»]""")
_EXCLUDED_WORD_PATTERN = re.compile(rf"(?:(?<=\s)|^)-(?=[^\W_]{{2}}|[{CJK_RANGES}])(\S+)")
_PLUS_PATTERN = re.compile(r"(?<![\w+])\+(?=[^\W\d_])")


def parse_query(text: str, language: str = "english") -> KeywordQuery:
    """Analyse a query; never raises, and a query without a word in it is false.

    Of several languages its terms are those of the first; small words of a further one are left out of a query that
    has two of them.

    A store matches a page that holds any of `terms`, or any term that begins with `prefix`; every phrase must be there
    and no excluded one. `prefix` is the last word as typed, not stemmed; its stem is among `terms`. So "running" finds
    run, and "kuber" finds kubernetes: `page_words` gives the index stems and, once a field, the words as written.
    """
    words = get_analyser(language)
    phrases: list[tuple[str, ...]] = []
    excluded: list[tuple[str, ...]] = []
    rest = text[:MAX_QUERY_CHARS]

    def quoted(found: re.Match[str]) -> str:
        (excluded if found[1] else phrases).append(tuple(words.to_terms(found[2]))[:_MAX_TERMS])
        return " \x00 "

    def dropped(found: re.Match[str]) -> str:
        excluded.append(tuple(words.to_terms(found[1]))[:_MAX_TERMS])
        return " \x00 "

    rest = _EXCLUDED_WORD_PATTERN.sub(dropped, _PHRASE_PATTERN.sub(quoted, rest))
    terms = tuple(dict.fromkeys(words.to_terms(rest)))
    own, *further = split_languages(language)
    small = get_stop_terms(own).union(*(_find_foreign_stopwords(terms, own, other) for other in further))
    telling = tuple(term for term in terms if term not in small)
    kept_phrases = _drop_empty(phrases)
    if not telling and not kept_phrases:
        telling = terms
    return KeywordQuery(
        terms=telling[:_MAX_TERMS],
        phrases=kept_phrases,
        excluded=_drop_empty(excluded),
        prefix=_get_prefix(rest, words, frozenset(telling)),
    )


def blank_operators(text: str) -> str:
    """A query's text, as long as it is, with blanks for what is quoted or excluded."""

    def blank(found: re.Match[str]) -> str:
        return "\x00" * len(found[0])

    return _EXCLUDED_WORD_PATTERN.sub(blank, _PHRASE_PATTERN.sub(blank, text[:MAX_QUERY_CHARS]))


def find_plain_words(text: str) -> list[tuple[int, int]]:
    """Where the words of a query's text stand that are neither quoted nor excluded."""
    return [found.span() for found in TOKEN_PATTERN.finditer(blank_operators(text))]


def get_significant_tokens(text: str, query: KeywordQuery, language: str = "english") -> list[str]:
    """The words of a query's text, as they were typed, that gave the query its terms; none of its phrases."""
    words, held = get_analyser(language), frozenset(query.terms)
    tokens = dict.fromkeys(text[start:end] for start, end in find_plain_words(text)[:_MAX_TERMS])
    return [token for token in tokens if held.intersection(words.get_token_terms(token))]


def get_significant_terms(text: str, language: str = "english") -> frozenset[str]:
    """The terms of a text that is no query but a name: without stop words, unless it has nothing else."""
    terms = frozenset(get_analyser(language).to_terms(text))
    return terms - get_stop_terms(split_languages(language)[0]) or terms


def to_plain_query(text: str) -> str:
    """The query as a sentence for a model: without what it excludes, quotation marks, and + before words."""

    def unquoted(found: re.Match[str]) -> str:
        return " " if found[1] else f" {found[2]} "

    return (
        " ".join(_PLUS_PATTERN.sub("", _EXCLUDED_WORD_PATTERN.sub(" ", _PHRASE_PATTERN.sub(unquoted, text))).split())
        or text
    )


def _get_prefix(rest: str, words: Analyser, significant: frozenset[str]) -> str:
    """The last word while it may still be being typed; never a stop word that was left out."""
    if not rest or rest[-1].isspace():
        return ""
    tokens = TOKEN_PATTERN.findall(rest)
    if not tokens or not significant.intersection(words.get_token_terms(tokens[-1])):
        return ""
    dense, last, _ = [*iter_script_runs(unicodedata.normalize("NFKC", tokens[-1]))][-1]
    if dense:
        return last[-2:]
    folded = normalize_term(last.strip("_.-·"))
    return folded if len(folded) >= 2 else ""


@cache
def get_stop_terms(language: str) -> frozenset[str]:
    """What queries in a language leave out, as terms."""
    return frozenset(get_analyser(language).to_terms(get_stopword_text(language)))


def _find_foreign_stopwords(terms: Iterable[str], language: str, other: str) -> frozenset[str]:
    """Small words of another language, read in this one: all of them if the query has two that this one lacks."""
    small = _get_stopwords_as_read(language, other) - get_stop_terms(language)
    return small if len(small.intersection(terms)) >= 2 else frozenset()


@cache
def _get_stopwords_as_read(language: str, other: str) -> frozenset[str]:
    return frozenset(get_analyser(language).to_terms(get_stopword_text(other)))


def _drop_empty(phrases: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(phrase for phrase in phrases if phrase))


# How a query may be read: in each language of its wiki, and as others would spell it. Each reading is a query in its
# own right, judged by the best that any page could have of it; a page counts by the one that fits it best. So a word
# that is read in two ways is not worth twice as much.


_MAX_VARIANTS = 8
_ACCENT_MARKS = re.compile("[\u0300-\u036f]+")
_UMLAUT_SPELLINGS = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}
) | (str.maketrans({"Ø": "Oe", "Å": "Aa"}))
_UMLAUT_LANGUAGES = frozenset(("danish", "finnish", "german", "norwegian", "swedish"))
_SPELLED_UMLAUT = re.compile("([aou])e|(a)a", re.IGNORECASE)
_HANGUL = re.compile("[\uac00-\ud7a3]+")
_PARTICLES = frozenset("을를이가은는에의도만와과로")
"""What Korean hangs on a noun; a noun of one syllable is then in a pair that nothing else shares with it."""


@dataclass(frozen=True, slots=True)
class QueryVariant:
    """A query as one language reads it."""

    language: str
    query: KeywordQuery


def build_query_variants(text: str, language: str) -> tuple[QueryVariant, ...]:
    """The ways to read a query that differ in their terms, the wiki's own language and the text as typed first."""
    languages, text = split_languages(language), text[:MAX_QUERY_CHARS]
    found: dict[tuple[object, ...], QueryVariant] = {}
    for own in languages:
        first = "+".join((own, *(other for other in languages if other != own)))
        for spelt in _iter_spellings(text, own):
            query = parse_query(spelt, first)
            found.setdefault((query.terms, query.phrases), QueryVariant(own, query))
    ways = [*found.values()][:_MAX_VARIANTS]
    # What is excluded is excluded however it is read.
    excluded = tuple(dict.fromkeys(phrase for way in ways for phrase in way.query.excluded))
    return tuple(replace(way, query=replace(way.query, excluded=excluded)) for way in ways)


def find_query_identifiers(text: str) -> tuple[str, ...]:
    """Identifiers in a query, whole, that pages may hold besides their parts."""
    return tuple(dict.fromkeys(find_identifiers(blank_operators(text))))


def find_korean_nouns(text: str, query: KeywordQuery, language: str) -> tuple[str, ...]:
    """Korean nouns of one syllable without the particle that a query has them with."""
    runs = (run for token in get_significant_tokens(text, query, language) for run in _HANGUL.findall(token))
    return tuple(dict.fromkeys(run[0] for run in runs if len(run) == 2 and run[1] in _PARTICLES))


def _iter_spellings(text: str, language: str) -> Iterator[str]:
    """A text as it is, without its accents, and with ä as ae or the other way round where that is done."""
    yield text
    if not text.isascii():
        yield unicodedata.normalize("NFC", _ACCENT_MARKS.sub("", unicodedata.normalize("NFD", text)))
    if language in _UMLAUT_LANGUAGES:
        yield unicodedata.normalize("NFC", text).translate(_UMLAUT_SPELLINGS)
        yield _SPELLED_UMLAUT.sub(lambda found: found[1] or found[2], text)
