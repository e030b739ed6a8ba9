"""Sentence and word boundaries, in scripts with and without spaces, and token counts for any range of a text."""

import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import sub

# Han, Kana, Hangul and their compatibility forms: scripts without spaces, or matched below the word level
CJK_RANGES = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3040-\u30ff\u3105-\u318f"
    + (
        "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\uffa0-\uffdc"
        "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
    )
)
SENTENCE_END_CHARACTERS = ".!?…。！？｡．؟۔।"
# A pattern that begins with a set of characters is found several times faster than one that begins with alternatives.
_SENTENCE_END_CHARACTER = rf"[{SENTENCE_END_CHARACTERS}\n]"
_AFTER_END_CHARACTER = (
    r"(?<=[.!?…])(?<![.!?…].)[.!?…]*+[\"'”’)\]*_`]*+\s++(?=[^\sa-z])"
    r"|(?<=[。！？｡．؟۔।])[。！？｡．؟۔।]*+[\"'”’」』）)\]]*+\s*+"
    r"|(?<=\n)[ \t]*+\n\s*+"
)
_SENTENCE_END = re.compile(rf"{_SENTENCE_END_CHARACTER}(?:{_AFTER_END_CHARACTER})")
_SENTENCE_OR_LINE_END = re.compile(rf"{_SENTENCE_END_CHARACTER}(?:{_AFTER_END_CHARACTER}|(?<=\n)\s*+)")
_LIST_ITEM = r"(?:[-*+]|[0-9]{1,9}[.)])[ \t]"
_SENTENCE_OR_ITEM_END = re.compile(rf"{_SENTENCE_END_CHARACTER}(?:{_AFTER_END_CHARACTER}|(?<=\n)\s*+(?={_LIST_ITEM}))")
_LINE_END = re.compile(r"\n\s*+")
_BOUNDARIES = {
    "paragraph": _SENTENCE_END,
    "heading": _SENTENCE_END,
    "quote": _SENTENCE_END,
    "list": _SENTENCE_OR_ITEM_END,
    "table": _LINE_END,
    "fence": _LINE_END,
    "code": _LINE_END,
}
"""For each kind of block, where it may be cut. Lines of prose are wrapped anywhere; a row of a table is a unit."""
_SPACED_RUN = re.compile(r"\S++")
_WORD_OR_CJK = re.compile(rf"[{CJK_RANGES}]|[^\s{CJK_RANGES}]++")


def find_sentence_starts(text: str, start: int, end: int, kind: str = "paragraph") -> list[int]:
    """Where sentences, or the items, rows and lines of this kind of block, begin within [start, end), except at
    `start`."""
    pattern = _BOUNDARIES.get(kind, _SENTENCE_OR_LINE_END)
    return [position for match in pattern.finditer(text, start, end) if start < (position := match.end()) < end]


def find_word_starts(text: str, start: int, end: int) -> list[int]:
    """Where words begin within [start, end); each CJK character is a word."""
    return [match.start() for match in _WORD_OR_CJK.finditer(text, start, end)]


def find_spaced_starts(text: str, start: int, end: int) -> list[int]:
    """Where runs without white space begin within [start, end)."""
    return [match.start() for match in _SPACED_RUN.finditer(text, start, end)]


# Token counts.

TokenSpans = Callable[[str], Sequence[tuple[int, int]]]

_MAX_TOKEN_CHARS = 100
_MAX_GAP_CHARS = 64
_PIECE_CHARS = 64
_STRETCH_CHARS = 65_536
_APPROXIMATE_TOKEN = re.compile(rf"[{CJK_RANGES}]|[^\W_{CJK_RANGES}]{{1,6}}|[^\w\s]|_")


def estimate_token_spans(text: str) -> list[tuple[int, int]]:
    """Approximate sub-word tokens, for use without a model."""
    return [match.span() for match in _APPROXIMATE_TOKEN.finditer(text)]


def has_at_most(text: str, limit: int, token_spans: TokenSpans) -> bool:
    """Whether the model makes at most `limit` tokens of the text.

    A token covers at least one ASCII character, and a model may put one token in front, so a short ASCII text needs
    no counting. This matters for long runs of punctuation, which are measured many times.
    """
    if len(text) < limit and text.isascii():
        return True
    return len(token_spans(text)) <= limit


class PageWorkLimitExceeded(Exception):
    """Preparing a page takes more work than allowed for one page."""


class MeteredTokenSpans:
    """A model's `token_spans` with a work limit for one page. Raises PageWorkLimitExceeded.

    Work is counted in characters read by the tokenizer, never in seconds, so the result is the same on every machine.
    """

    def __init__(self, token_spans: TokenSpans, max_work: int) -> None:
        self._token_spans = token_spans
        self._left = max_work

    def __call__(self, text: str) -> Sequence[tuple[int, int]]:
        self.spend(len(text))
        return self._token_spans(text)

    def spend(self, work: int) -> None:
        """Count work that was done elsewhere."""
        self._left -= work
        if self._left < 0:
            raise PageWorkLimitExceeded


class TokenCounter:
    """Counts the tokens of any range of a text, erring on the high side.

    A model may make one unknown token of a long run of characters (BERT does so over 100). When such a run is cut, its
    pieces are tokenized again, so it counts as the tokens of its pieces, and at least as a quarter of its characters.
    Text that no token covers counts a little, so that chunks cannot grow without bound.
    """

    def __init__(self, text: str, token_spans: TokenSpans) -> None:
        self._starts = array("q")
        self._ends = array("q")
        covered = 0
        for offset, spans in _iter_parts(text, token_spans):
            covered = self._add_tokens(text, offset, spans, covered, token_spans)
        if len(text) - covered > _MAX_GAP_CHARS:
            self._add_evenly(covered, len(text), (len(text) - covered) // 16)

    def _add_tokens(
        self, text: str, offset: int, spans: Sequence[tuple[int, int]], covered: int, token_spans: TokenSpans
    ) -> int:
        """Add the tokens of a part of the text and return the end of the last one."""
        if not spans:
            return covered
        starts, ends = zip(*spans, strict=True)
        if (
            max(map(sub, ends, starts)) <= _MAX_TOKEN_CHARS
            and offset + starts[0] - covered <= _MAX_GAP_CHARS
            and max(map(sub, starts[1:], ends), default=0) <= _MAX_GAP_CHARS
        ):
            self._starts.extend(map(offset.__add__, starts))
            self._ends.extend(map(offset.__add__, ends))
            return offset + int(ends[-1])
        for start, end in ((offset + start, offset + end) for start, end in spans):
            if start - covered > _MAX_GAP_CHARS:
                self._add_evenly(covered, start, (start - covered) // 16)
            if end - start > _MAX_TOKEN_CHARS:
                self._add_long_token(text, start, end, token_spans)
            else:
                self._starts.append(start)
                self._ends.append(end)
            covered = end
        return covered

    def count(self, start: int, end: int) -> int:
        """The number of tokens that the range touches."""
        count = bisect_left(self._starts, end) - bisect_right(self._ends, start)
        return count if count > 0 else 0

    def find_start(self, end: int, max_tokens: int, floor: int) -> int:
        """The earliest position, not before `floor`, with at most `max_tokens` tokens up to `end`."""
        last = bisect_left(self._starts, end)
        if last - max_tokens <= 0 or self.count(floor, end) <= max_tokens:
            return floor
        return max(floor, self._starts[last - max_tokens]) if max_tokens > 0 else end

    def find_token_starts(self, start: int, end: int, every: int) -> list[int]:
        """Positions within a range where a token begins, one for `every` tokens."""
        first = bisect_right(self._starts, start) + every - 1
        return list(self._starts[first : bisect_left(self._starts, end) : every])

    def _add_long_token(self, text: str, start: int, end: int, token_spans: TokenSpans) -> None:
        for begin in range(start, end, _PIECE_CHARS):
            stop = min(begin + _PIECE_CHARS, end)
            self._add_evenly(begin, stop, max(len(token_spans(text[begin:stop])), (stop - begin + 3) // 4))

    def _add_evenly(self, start: int, end: int, count: int) -> None:
        size = end - start
        for index in range(count):
            self._starts.append(start + size * index // count)
            self._ends.append(start + size * (index + 1) // count)


def _iter_parts(text: str, token_spans: TokenSpans) -> Iterator[tuple[int, Sequence[tuple[int, int]]]]:
    """Parts of a text by their offsets, with their token spans: a tokenizer takes about 200 bytes per character."""
    begin = 0
    while begin < len(text):
        end = begin + _STRETCH_CHARS
        if end < len(text):
            # splitting between lines, or at least between words, does not change the tokens
            cut = text.rfind("\n", begin, end)
            cut = cut if cut > begin else text.rfind(" ", begin, end)
            end = cut + 1 if cut > begin else end
        yield begin, token_spans(text[begin:end])
        begin = end
