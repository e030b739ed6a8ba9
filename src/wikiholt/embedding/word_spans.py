"""Token spans of long texts from cached words: five times faster than the tokenizer, with the same result.

Only for tokenizers that never make a token across certain boundaries between ASCII characters, and between words.
"""

import json
import re
from array import array
from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models

from wikiholt.text.segmentation import SpanArrays

_ASCII_PUNCTUATION = r"!-/:-@\[-`{-~"
# A word with the white space before it. Letters and digits end before punctuation, and punctuation before letters,
# unless an apostrophe is between them: byte-level tokenizers have "'s" and "'re" as units. Where a character beyond
# ASCII follows, the word goes on to the next white space.
_WORD = re.compile(
    rf"\s*+(?:[A-Za-z0-9]++(?=[{_ASCII_PUNCTUATION}\s]|\Z)"
    rf"|[{_ASCII_PUNCTUATION}]++(?:(?=\s|\Z)|(?<!')(?=[A-Za-z0-9]))|\S++|\Z)"
)
# The same in ASCII text, in less time.
_ASCII_WORD = re.compile(rf"\s*+(?:[A-Za-z0-9]++|[{_ASCII_PUNCTUATION}]++(?:(?<!')|(?=\s|\Z))|\S++|\Z)", re.ASCII)
# Tokenizers and Python do not agree on which of these characters are white space.
_UNCERTAIN = re.compile(
    "[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff]"
)
_MAX_WORD_CHARS = 100
_MAX_WORDS = 50_000
_MAX_TOKENS = 200_000

_Numbers = NDArray[np.int64]


def can_split_words(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer is of a kind for which the tokens of a text are those of its words."""
    if any(token.normalized or not token.content for token in tokenizer.get_added_tokens_decoder().values()):
        return False
    splitter, processor = _read_part(tokenizer.pre_tokenizer), _read_part(tokenizer.post_processor)
    kinds = _read_part(tokenizer.normalizer).get("type"), splitter.get("type"), type(tokenizer.model)
    if kinds == ("BertNormalizer", "BertPreTokenizer", models.WordPiece):
        return processor.get("type") in {"TemplateProcessing", "BertProcessing"}
    if kinds != (None, "ByteLevel", models.BPE):
        return False
    adds_space = splitter["add_prefix_space"] or processor.get("add_prefix_space", False)
    return splitter["use_regex"] and not adds_space and not tokenizer.model.dropout


def _read_part(part: Any) -> dict[str, Any]:
    """The settings of a part of a tokenizer, of which it has no other form."""
    return dict(json.loads(part.__getstate__())) if part is not None else {}


class WordSpanCache:
    """Computes token spans from those of words. Safe to use from many threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
        self._lock = Lock()
        self._table = _WordTable()

    def find_spans(self, text: str) -> "WordSpans | None":
        """The spans of the text; None if the tokenizer must find them."""
        if any(token in text for token in self._added) or _UNCERTAIN.search(text):
            return None
        words = (_ASCII_WORD if text.isascii() else _WORD).findall(text)
        table = self._table
        try:
            return WordSpans(table, _find_rows(table, words))
        except KeyError:
            return self._add_words(words)

    def _add_words(self, words: Sequence[str]) -> "WordSpans | None":
        with self._lock:
            table = self._table
            new_words = [word for word in dict.fromkeys(words) if word not in table.rows]
            if any(len(word) > _MAX_WORD_CHARS for word in new_words):
                return None
            if len(table.rows) + len(new_words) > _MAX_WORDS or table.starts.size > _MAX_TOKENS:
                # Other threads may read the old table, so it is replaced and not cleared.
                table, new_words = _WordTable(), list(dict.fromkeys(words))
                self._table = table
            encoding = self._tokenizer.encode(new_words, is_pretokenized=True, add_special_tokens=False)
            table.add(new_words, encoding.word_ids, encoding.offsets)
        return WordSpans(table, _find_rows(table, words))


def _find_rows(table: "_WordTable", words: Sequence[str]) -> _Numbers:
    return np.fromiter(map(table.rows.__getitem__, words), np.int64, len(words))


class _Column:
    """Numbers in an array that grows. The array of an earlier moment stays valid for the rows it had."""

    def __init__(self) -> None:
        self.array: _Numbers = np.empty(1024, np.int64)
        self.size = 0

    def extend(self, numbers: _Numbers) -> None:
        end = self.size + len(numbers)
        if end > len(self.array):
            grown = np.empty(2 * end, np.int64)
            grown[: self.size] = self.array[: self.size]
            self.array = grown
        self.array[self.size : end] = numbers
        self.size = end


class _WordTable:
    """The token spans of words. Words are added under the lock of the cache; rows never change."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.sizes = _Column()
        """Characters of each word."""
        self.counts = _Column()
        """Tokens of each word."""
        self.firsts = _Column()
        """Where the tokens of each word begin in `starts` and `ends`."""
        self.starts = _Column()
        self.ends = _Column()

    def add(self, words: Sequence[str], word_ids: Sequence[int | None], spans: Sequence[tuple[int, int]]) -> None:
        offsets = np.array(spans, np.int64).reshape(-1, 2)
        counts = np.bincount(np.array(word_ids, np.int64), minlength=len(words))
        self.firsts.extend(self.starts.size + np.cumsum(counts) - counts)
        self.counts.extend(counts)
        self.sizes.extend(np.array([len(word) for word in words], np.int64))
        self.starts.extend(offsets[:, 0])
        self.ends.extend(offsets[:, 1])
        # Last: a reader that finds a word here finds its row in the columns.
        self.rows.update(zip(words, range(len(self.rows), len(self.rows) + len(words)), strict=True))


class WordSpans(SpanArrays):
    """The token spans of one text, computed when they are first read; their number is known without that."""

    def __init__(self, table: _WordTable, rows: _Numbers) -> None:
        self._table = table
        self._rows = rows
        self._counts = table.counts.array[rows]
        self._count = int(self._counts.sum())
        self._arrays: tuple[_Numbers, _Numbers] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...

    @overload
    def __getitem__(self, index: slice) -> list[tuple[int, int]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, int] | list[tuple[int, int]]:
        starts, ends = self._get_arrays()
        if isinstance(index, slice):
            return list(zip(starts[index].tolist(), ends[index].tolist(), strict=True))
        return int(starts[index]), int(ends[index])

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self[:])

    def to_arrays(self) -> tuple["array[int]", "array[int]"]:
        starts, ends = self._get_arrays()
        return array("q", starts.tobytes()), array("q", ends.tobytes())

    def get_longest(self) -> int:
        starts, ends = self._get_arrays()
        return int((ends - starts).max(initial=0))

    def get_widest_gap(self) -> int:
        starts, ends = self._get_arrays()
        return int((starts[1:] - ends[:-1]).max(initial=0))

    def _get_arrays(self) -> tuple[_Numbers, _Numbers]:
        if self._arrays is None:
            table, rows, counts = self._table, self._rows, self._counts
            sizes = table.sizes.array[rows]
            word_starts = np.repeat(np.cumsum(sizes) - sizes, counts)
            tokens = np.repeat(table.firsts.array[rows] - np.cumsum(counts) + counts, counts) + np.arange(self._count)
            self._arrays = table.starts.array[tokens] + word_starts, table.ends.array[tokens] + word_starts
        return self._arrays
