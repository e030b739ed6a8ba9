"""How much of something fits: pure functions over texts and lists."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

from wikiholt.text.tokens import estimate_token_spans

T = TypeVar("T")

_MAX_COUNTED_CHARS = 20_000
"""Characters that are counted at once: a page may have millions, of which hundreds are wanted."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a model makes of a text."""
    return len(estimate_token_spans(text))


@dataclass(frozen=True, slots=True)
class TextPart:
    """Lines of a text; `rest` is the line, and the character in it, where what did not fit begins."""

    text: str
    first: int
    last: int
    rest: tuple[int, int] | None = None


def cut_lines(lines: Sequence[str], first: int, last: int, character: int, budget: int) -> TextPart:
    """As many of these lines (counted from 1) as fit; of one that is too long by itself, its beginning."""
    taken: list[str] = []
    left = budget
    for number in range(first, last + 1):
        line = lines[number - 1]
        begin = character if number == first else 0
        text = line[begin:]
        cost = estimate_tokens(text[:_MAX_COUNTED_CHARS]) + 1 if len(text) <= _MAX_COUNTED_CHARS else budget + 1
        if cost <= left:
            taken.append(text)
            left -= cost
            continue
        if taken:
            return TextPart("\n".join(taken), first, number - 1, (number, 0))
        end = begin + _count_fitting_chars(text, left)
        rest = (number, end) if end < len(line) else (number + 1, 0) if number < last else None
        return TextPart(line[begin:end], number, number, rest)
    return TextPart("\n".join(taken), first, max(first, last))


def _count_fitting_chars(text: str, budget: int) -> int:
    """How many characters of a text make up so many tokens, at least one."""
    spans = estimate_token_spans(text[:_MAX_COUNTED_CHARS])
    if len(spans) <= budget:
        return min(len(text), _MAX_COUNTED_CHARS)
    return max(1, spans[max(1, budget) - 1][1])


def take_fitting(items: Sequence[T], get_cost: Callable[[T], int], budget: int) -> list[T]:
    """The first items that fit together, at least one if there is one."""
    taken: list[T] = []
    left = budget
    for item in items:
        left -= get_cost(item)
        if left < 0 and taken:
            break
        taken.append(item)
    return taken


def truncate_text(text: str, budget: int) -> str:
    """The beginning of a text, with an ellipsis where something is missing."""
    spans = list(islice(estimate_token_spans(text[:_MAX_COUNTED_CHARS]), budget + 1))
    return text if len(spans) <= budget and len(text) <= _MAX_COUNTED_CHARS else f"{text[: spans[budget - 1][1]]}…"
