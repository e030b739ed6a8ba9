"""Sentences with numbers or dates, and which of them differ from a nearly equal sentence only in these. Pure."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from wikiholt.domain.search import StoredChunk
from wikiholt.text.dialect import Dialect
from wikiholt.text.snippets import split_sentences

_MIN_WORDS, _MAX_WORDS = 6, 60
_SHARED_WORDS = 0.8
"""The share of their words that two sentences have in common, numbers left out."""
_MAX_VALUES = 2
"""If more values are in use, the sentence is a template, and each page has a value of its own."""
_MAX_SENTENCES_PER_RUN = 50
"""Runs of words in more sentences are too common to compare all of these."""
_RUN_WORDS = 3
_NUMBER = "0"
_TOKEN = re.compile(r"[^\W_]+(?:[.,:/-]\d+)*")
_DIGITS = re.compile(r"\d+")
_MONTHS = re.compile(
    "(?:January|February|March|April|May|June|July|August|September|October|November|December"
    "|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)"
)
_CODE = re.compile(r"^(```|~~~).*?(?:^\1|\Z)", re.MULTILINE | re.DOTALL)
_NO_PROSE = re.compile(r"^(?:[ \t]*+\||#| {4}|\t).*$", re.MULTILINE)


class NumberSentence(NamedTuple):
    """A sentence with numbers: its words, with `0` for each number, and the numbers in order."""

    path: str
    text: str
    words: tuple[str, ...]
    numbers: tuple[str, ...]
    chunk: StoredChunk


def read_number_sentences(path: str, chunks: Iterable[StoredChunk], dialect: Dialect) -> list[NumberSentence]:
    """The sentences of a page with numbers, without headings, tables and blocks of code."""
    found: dict[tuple[tuple[str, ...], tuple[str, ...]], NumberSentence] = {}
    for chunk in chunks:
        prose = _NO_PROSE.sub("", _CODE.sub("", chunk.text))
        for text in split_sentences(prose, dialect) if re.search(r"\d", prose) else ():
            tokens = _TOKEN.findall(text)
            words = tuple(_NUMBER if _is_number(token) else token.casefold() for token in tokens)
            numbers = tuple(token for token in tokens if _is_number(token))
            if numbers and _MIN_WORDS <= len(words) - len(numbers) <= _MAX_WORDS:
                # Chunks overlap, so a sentence may be in two.
                found.setdefault((words, numbers), NumberSentence(path, text, words, numbers, chunk))
    return list(found.values())


def _is_number(token: str) -> bool:
    return token[0].isdigit() or _MONTHS.fullmatch(token) is not None


def find_conflicts(
    changed: Iterable[NumberSentence], sentences: Sequence[NumberSentence]
) -> Iterator[tuple[NumberSentence, NumberSentence]]:
    """Each changed sentence that has other numbers than a nearly equal sentence of another page, with that sentence."""
    by_run: defaultdict[tuple[str, ...], list[NumberSentence]] = defaultdict(list)
    for sentence in sentences:
        for run in _build_runs(sentence):
            by_run[run].append(sentence)
    for sentence in changed:
        similar = {
            other: None
            for run in _build_runs(sentence)
            if len(by_run[run]) <= _MAX_SENTENCES_PER_RUN
            for other in by_run[run]
            if not are_one_series(sentence.path, other.path) and _is_nearly_equal(sentence, other)
        }
        different = [other for other in similar if other.numbers != sentence.numbers]
        if different and len({sentence.numbers, *(other.numbers for other in similar)}) <= _MAX_VALUES:
            yield sentence, different[0]


def are_one_series(one: str, other: str) -> bool:
    """Whether two pages have the same path but for numbers, as release notes and minutes: they repeat their texts."""
    return _DIGITS.sub("", one) == _DIGITS.sub("", other)


def _build_runs(sentence: NumberSentence) -> set[tuple[str, ...]]:
    words = sentence.words
    return set(zip(words, words[1:], words[2:], strict=False))


def _is_nearly_equal(one: NumberSentence, other: NumberSentence) -> bool:
    if len(one.numbers) != len(other.numbers):
        return False
    words, others = set(one.words), set(other.words)
    return len(words & others) >= _SHARED_WORDS * len(words | others)
