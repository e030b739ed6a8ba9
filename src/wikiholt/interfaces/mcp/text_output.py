"""The text of tool results and errors, and cutting text to a token budget. Pure functions."""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from wikiholt.api.public_messages import get_public_message
from wikiholt.errors import (
    DatabaseUnavailable,
    Forbidden,
    IndexUnavailable,
    InputTooLarge,
    NotWritable,
    PageNotFound,
    RevisionMismatch,
    TooManyRequests,
    WikiholtError,
)
from wikiholt.interfaces.mcp.tool_schemas import Continuation, ToolArguments
from wikiholt.text.segmentation import estimate_token_spans

T = TypeVar("T")

COMMIT_TEXTS = ("author", "email", "message")
"""The fields of a commit that may be long."""
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


def split_lines(text: str) -> list[str]:
    """The lines of a page without their line breaks, except for one at its end, after which there is no line."""
    lines = text.split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines[-2:] = [f"{lines[-2]}\n"]
    return lines


def cut_lines(lines: Sequence[str], first: int, last: int, character: int, budget: int) -> TextPart:
    """The lines (numbered from 1) that fit the budget; the start of the first line if it is too long itself."""
    taken: list[str] = []
    remaining = budget
    for number in range(first, last + 1):
        line = lines[number - 1]
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
        next_position = (number, end) if end < len(line) else (number + 1, 0) if number < last else None
        return TextPart(line[start:end], number, number, next_position)
    return TextPart("\n".join(taken), first, max(first, last))


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


def take_shortened(items: Sequence[T], names: Sequence[str], share: int) -> list[T]:
    """The first items that fit, at least one, whose named fields are shortened to a part of the share."""
    shortened = (shorten_fields(item, names, share // (2 * len(names))) for item in items)
    return take_fitting(shortened, share)


def truncate_text(text: str, budget: int) -> str:
    """The start of a text, with an ellipsis if it was cut."""
    spans = list(islice(estimate_token_spans(text[:_MAX_COUNTED_CHARS]), budget + 1))
    if len(spans) <= budget:
        return text if len(text) <= _MAX_COUNTED_CHARS else f"{text[:_MAX_COUNTED_CHARS]}…"
    return f"{text[: spans[budget - 1][1]]}…"


# The calls that return what was left out.


def build_list_continuation(
    tool: str, params: ToolArguments, offset: int, remaining: int, noun: str, *, exact: bool = True
) -> Continuation | None:
    """The call that lists the remaining entries, from this offset on."""
    if remaining <= 0:
        return None
    text = f"{remaining} more {noun}." if exact else f"There are more {noun}."
    return {"message": text, "tool": tool, "arguments": {**params.model_dump(exclude_defaults=True), "offset": offset}}


def build_part_continuation(part: TextPart, last: int, tool: str, arguments: dict[str, Any]) -> Continuation | None:
    """The call that returns the text after this part, up to the line `last`."""
    if part.next_position is None:
        return None
    line, character = part.next_position
    start = {"from_line": line} | ({"from_character": character} if character else {})
    return {
        "message": f"The result ends before line {line} of {last}"
        + (f", character {character}." if character else "."),
        "tool": tool,
        "arguments": {**arguments, **start},
    }


# The text of results, and of errors with the next step.


_NEXT_STEPS: Mapping[type[WikiholtError], str] = {
    PageNotFound: "Call search or list_pages to find the page's path.",
    Forbidden: "Do without it, or ask for a key that allows it.",
    NotWritable: "This wiki cannot be written to from here. Tell the user what you would have written.",
    InputTooLarge: "Split it into several pages.",
    IndexUnavailable: "Wait a few seconds and call it again; read_page works without the index.",
}


def format_compact_json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def quote_text(text: str) -> list[str]:
    """The lines of a text of the wiki, between two marks."""
    # The mark is random, so that no page can end its own quotation.
    mark = secrets.token_hex(6)
    return [f"----- page text {mark} -----", text, f"----- end of page text {mark} -----"]


def join_lines(lines: Sequence[str], continuation: Continuation | None, *, stale: bool = False) -> str:
    """The text of a result: its lines, and how to get the rest."""
    note = ["The index is behind the newest commit."] if stale else []
    return "\n".join([*lines, *note, *format_continuation(continuation)])


def format_continuation(continuation: Continuation | None) -> list[str]:
    return (
        [f"{continuation['message']} Next: {continuation['tool']} {format_compact_json(continuation['arguments'])}"]
        if continuation
        else []
    )


def format_error(error: WikiholtError, similar_paths: Iterable[str] = (), *, can_write: bool = False) -> str:
    """The public message of an error and the next step. Internal details are left out."""
    message, hint = get_public_message(error)
    next_step = next((_NEXT_STEPS[kind] for kind in type(error).__mro__ if kind in _NEXT_STEPS), "")
    if isinstance(error, PageNotFound) and can_write:
        next_step += " write_page creates a new page."
    if isinstance(error, Forbidden) and hint:
        next_step = ""
    hint = "" if next_step else hint
    if isinstance(error, TooManyRequests | DatabaseUnavailable):
        next_step, hint = f"Wait {max(1, error.retry_after):.0f} seconds and call it again.", ""
    if isinstance(error, RevisionMismatch) and error.current:
        next_step, hint = f"The page is at revision {error.current} now. {_end_sentence(hint)}", ""
    if similar := list(similar_paths):
        next_step = f"Did you mean {' or '.join(map(repr, similar))}? {next_step}"
    lines = [f"{error.code}: {message}"]
    steps = " ".join(filter(None, [_end_sentence(next_step), _end_sentence(hint)]))
    return "\n".join([*lines, *([f"Next: {steps}"] if steps else [])])


def _end_sentence(text: str) -> str:
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def format_invalid_arguments(tool: str, error: ValidationError) -> str:
    """The invalid arguments, each with the reason."""
    messages = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        reason = "there is no such argument" if fault["type"] == "extra_forbidden" else fault["msg"]
        messages.append(f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {reason}")
    return f"invalid-input: {'; '.join(messages[:5])}\nNext: call {tool} again with arguments that match its schema."
