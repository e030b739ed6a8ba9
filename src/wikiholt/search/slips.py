"""Which words of a query may be slips of the fingers, and how a word is written in place of another. Pure functions."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from wikiholt.search.request import MAX_QUERY_CHARS
from wikiholt.text.analysis import iter_script_runs, normalize_term
from wikiholt.text.queries import find_plain_words

MIN_WORD_CHARS = 4
_MAX_WORDS = 8
"""Words of a query that are looked at: a text in another language is no row of typing errors."""
_NO_WORD_BEFORE, _NO_WORD_AFTER = frozenset("-/\\@#.:_$=<&%+*~"), frozenset("/\\@#_$=<&%+*~([")
"""Signs that make what stands beside them part of a path, an option, an address or code; + is there to be typed."""
_LETTER_PARTS_PATTERN = re.compile(r"[A-Z]?[a-z]+(?=[A-Z])|[^0-9_.\-'’·]+")


@dataclass(frozen=True, slots=True)
class QueryWord:
    """A word of a query that may be corrected, and where it stands."""

    start: int
    end: int
    typed: str
    normalized: str
    is_unfinished: bool
    """Whether it is the last one and may still be being typed."""
    is_name: bool
    with_neighbours: tuple[tuple[int, int, str], ...]
    """It and the word before it or after it as if there were no space between them: from, to, what that gives."""


def find_words(text: str) -> list[QueryWord]:
    """The words that may be corrected: of letters alone, long enough, of a script that has spaces between words."""
    spans = find_plain_words(text)
    found = []
    for at, (start, end) in enumerate(spans):
        token = text[start:end]
        if len(normalize_term(token)) >= MIN_WORD_CHARS and _is_plain_word(token) and _is_free_standing(text, start, end):
            around = _join_neighbours(text, spans, at)
            found.append(QueryWord(start, end, token, normalize_term(token), end == len(text), token[0].isupper(), around))
    return found[:_MAX_WORDS]


def find_replaced_words(query: str, corrected: str) -> list[tuple[int, int]]:
    """Where the words of a query stand that another takes the place of in what was meant."""
    kept = {corrected[start:end] for start, end in find_plain_words(corrected)}
    return [(start, end) for start, end in find_plain_words(query) if query[start:end] not in kept] if corrected else []


def format_as_typed(query: str, corrected: str) -> str:
    """The query that searches for those words as they were typed, its end cut off where it would be too long."""
    for start, _ in reversed(find_replaced_words(query, corrected)):
        query = f"{query[:start]}+{query[start:]}"
    return query[:MAX_QUERY_CHARS]


def is_letters_only(word: str) -> bool:
    return word.isalpha() or all(unicodedata.category(sign)[0] in "LM" for sign in word)


def split_letter_parts(token: str) -> list[str]:
    """The words of letters in a token: office and hours in office-hours, user and Name in userName."""
    return _LETTER_PARTS_PATTERN.findall(token)


def copy_capitals(typed: str, word: str) -> str:
    """The word with capitals as the typed one has them."""
    if typed.islower():
        return word.lower()
    if typed.isupper():
        return word.upper()
    return word[:1].upper() + word[1:] if typed[:1].isupper() else word


def _is_plain_word(token: str) -> bool:
    """Whether it is a word of letters, and no name such as getUser."""
    if not is_letters_only(token) or any(dense for dense, _, _ in iter_script_runs(token)):
        return False
    return token.isupper() or not any(letter.isupper() for letter in token[1:])


def _is_free_standing(text: str, start: int, end: int) -> bool:
    return text[start - 1 : start] not in _NO_WORD_BEFORE and text[end : end + 1] not in _NO_WORD_AFTER


def _join_neighbours(text: str, spans: Sequence[tuple[int, int]], at: int) -> tuple[tuple[int, int, str], ...]:
    pairs = [pair for pair in (spans[at - 1 : at + 1], spans[at : at + 2]) if len(pair) == 2]
    whole = [(one[0], other[1], text[one[0] : one[1]], text[other[0] : other[1]]) for one, other in pairs]
    return tuple(
        (start, end, before + after)
        for start, end, before, after in whole
        if text[start:end] == f"{before} {after}" and _is_plain_word(before) and _is_plain_word(after)
    )
