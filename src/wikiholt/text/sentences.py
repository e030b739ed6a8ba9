"""Where sentences and words begin, in scripts with and without spaces."""

import re

# Han, Kana, Hangul and their compatibility forms: scripts written without spaces, or matched below the word
CJK_RANGES = "\u1100-\u11ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3040-\u30ff\u3105-\u318f" + (
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\uffa0-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
SENTENCE_END_CHARACTERS = ".!?…。！？｡．؟۔।"
_SENTENCE_END_EXPRESSION = (
    r"(?<![.!?…])[.!?…]++[\"'”’)\]*_`]*+\s++(?=[^\sa-z])"
    r"|[。！？｡．؟۔।]++[\"'”’」』）)\]]*+\s*+"
    r"|\n[ \t]*+\n\s*+"
)
_SENTENCE_END = re.compile(_SENTENCE_END_EXPRESSION)
_SENTENCE_OR_LINE_END = re.compile(rf"{_SENTENCE_END_EXPRESSION}|\n\s*+")
_SPACED_RUN = re.compile(r"\S++")
_WORD_OR_CJK = re.compile(rf"[{CJK_RANGES}]|[^\s{CJK_RANGES}]++")


def find_sentence_starts(text: str, start: int, end: int, *, by_line: bool) -> list[int]:
    """Where sentences begin within [start, end), `start` itself left out; with `by_line`, lines begin them too."""
    pattern = _SENTENCE_OR_LINE_END if by_line else _SENTENCE_END
    return [at for found in pattern.finditer(text, start, end) if start < (at := found.end()) < end]


def find_word_starts(text: str, start: int, end: int) -> list[int]:
    """Where words begin within [start, end); each CJK character is one."""
    return [found.start() for found in _WORD_OR_CJK.finditer(text, start, end)]


def find_spaced_starts(text: str, start: int, end: int) -> list[int]:
    """Where runs without a space begin within [start, end)."""
    return [found.start() for found in _SPACED_RUN.finditer(text, start, end)]
