"""Keyword queries as people type them: words, "quoted phrases", -word, -"a phrase" and +word."""

import re
import unicodedata
from collections.abc import Iterable
from functools import cache

from wikiholt.model import WordQuery
from wikiholt.text.analysis import TOKEN, Analyser, analyser, dense_runs, fold, languages_of
from wikiholt.text.sentences import CJK
from wikiholt.text.smallwords import small_text

LONGEST_QUERY = 2_000
_MOST_TERMS = 64
_PHRASE = re.compile(r"""(?:(?<=\s)|^)(-?)["“”„«]([^"“”„«»]*)["“”»]""")
_EXCLUDED = re.compile(rf"(?:(?<=\s)|^)-(?=[^\W_]{{2}}|[{CJK}])(\S+)")
_AS_TYPED = re.compile(r"(?<![\w+])\+(?=[^\W\d_])")


def parse_query(text: str, language: str = "english") -> WordQuery:
    """Analyse a query; never raises, and a query without a word in it is false.

    Of several languages its terms are those of the first; small words of a further one are left out of a query that
    has two of them.

    A store matches a page that holds any of `terms`, or any term that begins with `prefix`; every phrase must be there
    and no excluded one. `prefix` is the last word as typed, not stemmed; its stem is among `terms`. So "running" finds
    run, and "kuber" finds kubernetes: `page_words` gives the index stems and, once a field, the words as written.
    """
    words = analyser(language)
    phrases: list[tuple[str, ...]] = []
    excluded: list[tuple[str, ...]] = []
    rest = text[:LONGEST_QUERY]

    def quoted(found: re.Match[str]) -> str:
        (excluded if found[1] else phrases).append(tuple(words.terms(found[2]))[:_MOST_TERMS])
        return " \x00 "

    def dropped(found: re.Match[str]) -> str:
        excluded.append(tuple(words.terms(found[1]))[:_MOST_TERMS])
        return " \x00 "

    rest = _EXCLUDED.sub(dropped, _PHRASE.sub(quoted, rest))
    terms = tuple(dict.fromkeys(words.terms(rest)))
    own, *further = languages_of(language)
    small = stop_terms(own).union(*(_foreign(terms, own, other) for other in further))
    telling = tuple(term for term in terms if term not in small)
    kept_phrases = _present(phrases)
    if not telling and not kept_phrases:
        telling = terms
    return WordQuery(
        terms=telling[:_MOST_TERMS],
        phrases=kept_phrases,
        excluded=_present(excluded),
        prefix=_prefix(rest, words, frozenset(telling)),
    )


def loose_text(text: str) -> str:
    """A query's text, as long as it is, with blanks for what is quoted or excluded."""

    def blank(found: re.Match[str]) -> str:
        return "\x00" * len(found[0])

    return _EXCLUDED.sub(blank, _PHRASE.sub(blank, text[:LONGEST_QUERY]))


def loose_words(text: str) -> list[tuple[int, int]]:
    """Where the words of a query's text stand that are neither quoted nor excluded."""
    return [found.span() for found in TOKEN.finditer(loose_text(text))]


def telling_tokens(text: str, query: WordQuery, language: str = "english") -> list[str]:
    """The words of a query's text, as they were typed, that gave the query its terms; none of its phrases."""
    words, held = analyser(language), frozenset(query.terms)
    tokens = dict.fromkeys(text[start:end] for start, end in loose_words(text)[:_MOST_TERMS])
    return [token for token in tokens if held.intersection(words.token_terms(token))]


def telling_terms(text: str, language: str = "english") -> frozenset[str]:
    """The terms of a text that is no query but a name: without stop words, unless it has nothing else."""
    terms = frozenset(analyser(language).terms(text))
    return terms - stop_terms(languages_of(language)[0]) or terms


def plain_query(text: str) -> str:
    """The query as a sentence for a model: without what it excludes, quotation marks, and + before words."""

    def unquoted(found: re.Match[str]) -> str:
        return " " if found[1] else f" {found[2]} "

    return " ".join(_AS_TYPED.sub("", _EXCLUDED.sub(" ", _PHRASE.sub(unquoted, text))).split()) or text


def _prefix(rest: str, words: Analyser, telling: frozenset[str]) -> str:
    """The last word while it may still be being typed; never a stop word that was left out."""
    if not rest or rest[-1].isspace():
        return ""
    tokens = TOKEN.findall(rest)
    if not tokens or not telling.intersection(words.token_terms(tokens[-1])):
        return ""
    dense, last, _ = [*dense_runs(unicodedata.normalize("NFKC", tokens[-1]))][-1]
    if dense:
        return last[-2:]
    folded = fold(last.strip("_.-·"))
    return folded if len(folded) >= 2 else ""


@cache
def stop_terms(language: str) -> frozenset[str]:
    """What queries in a language leave out, as terms."""
    return frozenset(analyser(language).terms(small_text(language)))


def _foreign(terms: Iterable[str], language: str, other: str) -> frozenset[str]:
    """Small words of another language, read in this one: all of them if the query has two that this one lacks."""
    small = _small_as_read(language, other) - stop_terms(language)
    return small if len(small.intersection(terms)) >= 2 else frozenset()


@cache
def _small_as_read(language: str, other: str) -> frozenset[str]:
    return frozenset(analyser(language).terms(small_text(other)))


def _present(phrases: Iterable[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    return tuple(dict.fromkeys(phrase for phrase in phrases if phrase))
