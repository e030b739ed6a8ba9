"""How a query may be read: in each language of its wiki, and as others would spell it.

Each reading is a query in its own right, judged by the best that any page could have of it; a page counts by the one
that fits it best. So a word that is read in two ways is not worth twice as much.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wikiholt.model import KeywordQuery
from wikiholt.text.analysis import split_languages
from wikiholt.text.identifiers import find_identifiers
from wikiholt.text.queries import MAX_QUERY_CHARS, blank_operators, parse_query, get_significant_tokens

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
