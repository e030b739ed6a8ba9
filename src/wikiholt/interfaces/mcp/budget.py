"""Cutting the text and the lists of answers to a token budget. Pure functions."""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast

from wikiholt.text.segmentation import estimate_token_spans

T = TypeVar("T")

_MAX_COUNTED_CHARS = 20_000
"""Tokens are counted in at most this number of characters, because a page may have millions."""
_JSON_SYNTAX = re.compile(r'[\[\]{}",:]+')
_MAX_FIT_TRIES = 16


def estimate_tokens(text: str) -> int:
    """The approximate number of tokens of a text."""
    return len(estimate_token_spans(text))


def estimate_answer_tokens(text: str) -> int:
    """The approximate number of tokens of text that may be JSON. Models read a run of its punctuation as one token."""
    return estimate_tokens(_JSON_SYNTAX.sub('"', text))


def format_compact_json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def estimate_json_tokens(document: Any) -> int:
    """The approximate number of tokens of a document as JSON."""
    return estimate_answer_tokens(format_compact_json(document))


def fit_to_budget(build: Callable[[int], T], format_text: Callable[[T], str], budget: int) -> T:
    """The document of the largest tried share whose text and structured content both keep to the budget.

    `build` makes the document with about `share` tokens of content; what surrounds the content is measured here.
    """
    share = budget
    document = build(share)
    for _ in range(_MAX_FIT_TRIES):
        used = max(estimate_answer_tokens(format_text(document)), estimate_json_tokens(document))
        if used <= budget or share <= 1:
            break
        excess = used - budget
        share = max(1, share - excess if 2 * excess <= share else share * budget // used)
        document = build(share)
    return document


def shorten_fields(document: T, names: Iterable[str], budget: int) -> T:
    """A copy of a document whose named texts and lists of texts have at most `budget` tokens each."""
    fields = cast(dict[str, Any], document)
    changed = {name: _shorten(fields[name], max(1, budget)) for name in names if fields.get(name)}
    return cast(T, {**fields, **changed})


def _shorten(value: Any, budget: int) -> Any:
    if isinstance(value, str):
        return truncate_text(value, budget)
    kept: list[str] = []
    remaining = budget
    for item in value:
        remaining -= estimate_tokens(item[:_MAX_COUNTED_CHARS]) + 1
        if remaining < 0:
            return [*kept, f"… and {len(value) - len(kept)} more"]
        kept.append(item)
    return kept


@dataclass(frozen=True, slots=True)
class TextPart:
    """Lines of a text; `next_position` is the line and character at which the omitted part starts."""

    text: str
    first: int
    last: int
    next_position: tuple[int, int] | None = None


def cut_lines(lines: Sequence[str], first: int, character: int, budget: int) -> TextPart:
    """The lines, numbered from `first`, that fit the budget; the start of the first line if it is too long itself."""
    taken: list[str] = []
    remaining = budget
    for number, line in enumerate(lines, first):
        start = character if number == first else 0
        text = line[start:]
        cost = estimate_tokens(text[:_MAX_COUNTED_CHARS]) + 1 if len(text) <= _MAX_COUNTED_CHARS else budget + 1
        if cost <= remaining:
            taken.append(text)
            remaining -= cost
            continue
        if taken:
            return TextPart("\n".join(taken), first, number - 1, (number, 0))
        end = start + _count_fitting_chars(text, remaining)
        is_last = number == first + len(lines) - 1
        next_position = (number, end) if end < len(line) else None if is_last else (number + 1, 0)
        return TextPart(line[start:end], number, number, next_position)
    return TextPart("\n".join(taken), first, max(first, first + len(lines) - 1))


def _count_fitting_chars(text: str, budget: int) -> int:
    """The number of characters that fit the budget; at least one."""
    spans = estimate_token_spans(text[:_MAX_COUNTED_CHARS])
    if len(spans) <= budget:
        return min(len(text), _MAX_COUNTED_CHARS)
    return max(1, spans[max(1, budget) - 1][1])


def take_fitting(items: Iterable[T], budget: int, *, at_least: int = 1) -> list[T]:
    """The first items that fit the budget as JSON; at least `at_least` if there are that many."""
    taken: list[T] = []
    remaining = budget
    for item in items:
        remaining -= estimate_json_tokens(item)
        if remaining < 0 and len(taken) >= at_least:
            break
        taken.append(item)
    return taken


def take_shortened(items: Sequence[T], names: Iterable[str], share: int) -> list[T]:
    """The first items that fit, at least one, with these of their fields shortened to a part of the share."""
    long_names = frozenset(names)

    def shorten(item: T) -> T:
        found = long_names & item.keys() if isinstance(item, dict) else ()
        return shorten_fields(item, found, share // (2 * len(found))) if found else item

    return take_fitting(map(shorten, items), share)


def truncate_text(text: str, budget: int) -> str:
    """The start of a text, with an ellipsis if it was cut."""
    spans = list(islice(estimate_token_spans(text[:_MAX_COUNTED_CHARS]), budget + 1))
    if len(spans) <= budget:
        return text if len(text) <= _MAX_COUNTED_CHARS else f"{text[:_MAX_COUNTED_CHARS]}…"
    return f"{text[: spans[budget - 1][1]]}…"
