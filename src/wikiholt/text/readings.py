"""How a query may be read: in each language of its wiki, and as others would spell it.

Each reading is a query in its own right, judged by the best that any page could have of it; a page counts by the one
that fits it best. So a word that is read in two ways is not worth twice as much.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, replace

from wikiholt.model import WordQuery
from wikiholt.text.analysis import languages_of
from wikiholt.text.identifiers import joined
from wikiholt.text.queries import LONGEST_QUERY, loose_text, parse_query, telling_tokens

_MOST = 8
_ACCENTS = re.compile("[\u0300-\u036f]+")
_WRITTEN_OUT = str.maketrans(
    {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"}
) | (str.maketrans({"Ø": "Oe", "Å": "Aa"}))
_UMLAUTS = frozenset(("danish", "finnish", "german", "norwegian", "swedish"))
_OUT = re.compile("([aou])e|(a)a", re.IGNORECASE)
_HANGUL = re.compile("[\uac00-\ud7a3]+")
_PARTICLES = frozenset("을를이가은는에의도만와과로")
"""What Korean hangs on a noun; a noun of one syllable is then in a pair that nothing else shares with it."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A query as one language reads it."""

    language: str
    query: WordQuery


def readings(text: str, language: str) -> tuple[Reading, ...]:
    """The ways to read a query that differ in their terms, the wiki's own language and the text as typed first."""
    languages, text = languages_of(language), text[:LONGEST_QUERY]
    found: dict[tuple[object, ...], Reading] = {}
    for own in languages:
        first = "+".join((own, *(other for other in languages if other != own)))
        for spelt in _spellings(text, own):
            query = parse_query(spelt, first)
            found.setdefault((query.terms, query.phrases), Reading(own, query))
    ways = [*found.values()][:_MOST]
    # What is excluded is excluded however it is read.
    excluded = tuple(dict.fromkeys(phrase for way in ways for phrase in way.query.excluded))
    return tuple(replace(way, query=replace(way.query, excluded=excluded)) for way in ways)


def wholes(text: str) -> tuple[str, ...]:
    """Identifiers in a query, whole, that pages may hold besides their parts."""
    return tuple(dict.fromkeys(joined(loose_text(text))))


def nouns(text: str, query: WordQuery, language: str) -> tuple[str, ...]:
    """Korean nouns of one syllable without the particle that a query has them with."""
    runs = (run for token in telling_tokens(text, query, language) for run in _HANGUL.findall(token))
    return tuple(dict.fromkeys(run[0] for run in runs if len(run) == 2 and run[1] in _PARTICLES))


def _spellings(text: str, language: str) -> Iterator[str]:
    """A text as it is, without its accents, and with ä as ae or the other way round where that is done."""
    yield text
    if not text.isascii():
        yield unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))
    if language in _UMLAUTS:
        yield unicodedata.normalize("NFC", text).translate(_WRITTEN_OUT)
        yield _OUT.sub(lambda found: found[1] or found[2], text)
