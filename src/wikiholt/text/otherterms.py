"""Other terms for the words of a query: the same words as another language stems them, or as others spell them."""

import re
from collections.abc import Iterator

from wikiholt.model import WordQuery
from wikiholt.text.analysis import analyser, bare, dense_runs, joined, languages_of
from wikiholt.text.queries import loose_text, stop_terms, telling_tokens

_MOST = 64
_WRITTEN_OUT = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"})
_UMLAUTS = frozenset(("danish", "finnish", "german", "norwegian", "swedish"))
_OUT = re.compile("[aou]e|aa")
_HANGUL = re.compile("[\uac00-\ud7a3]+")
_PARTICLES = frozenset("을를이가은는에의도만와과로")
"""What Korean hangs on a noun; a noun of one syllable is then in a pair that nothing else shares with it."""


def other_terms(text: str, query: WordQuery, language: str) -> tuple[str, ...]:
    """Terms by which pages may hold the words of a query, beside its own.

    They come of the words alone. One that no page holds does no harm, for a query is judged by its own terms.
    """
    languages = languages_of(language)
    own = languages[0]
    tokens = telling_tokens(text, query, own)
    found = dict.fromkeys(joined(loose_text(text)))
    for token in tokens:
        for each in languages:
            words = analyser(each)
            spelt = [*_spellings(token, each), *([token] if each != own else ())]
            found.update(dict.fromkeys(term for word in spelt for term in words.token_terms(word)))
        found.update(dict.fromkeys(_nouns(token)))
    known = stop_terms(own).union(query.terms)
    return tuple(term for term in found if term not in known)[:_MOST]


def _spellings(token: str, language: str) -> Iterator[str]:
    """A word without its accents, and with ä as ae or the other way round where that is done."""
    if not token.isascii() and not any(dense for dense, _, _ in dense_runs(token)):
        yield bare(token)
    if language in _UMLAUTS:
        word = token.lower()
        if (out := word.translate(_WRITTEN_OUT)) != word:
            yield out
        if (back := _OUT.sub(lambda found: found[0][0], word)) != word:
            yield back


def _nouns(token: str) -> list[str]:
    return [run[0] for run in _HANGUL.findall(token) if len(run) == 2 and run[1] in _PARTICLES]
