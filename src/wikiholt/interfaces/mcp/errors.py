"""The text of errors for agents: what is wrong, and the next step."""

from collections.abc import Iterable, Mapping

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

_NEXT_STEPS: Mapping[type[WikiholtError], str] = {
    PageNotFound: "Call search or list_pages to find the page's path.",
    Forbidden: "Do without it, or ask for a key that allows it.",
    NotWritable: "This wiki cannot be written to from here. Tell the user what you would have written.",
    InputTooLarge: "Split it into several pages.",
    IndexUnavailable: "Wait a few seconds and call it again; read_page works without the index.",
}


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
        step = "Call read_page, then send its revision."
        next_step, hint = f"The page is at revision {error.current} now. {step}", ""
    if similar := list(similar_paths):
        next_step = f"Did you mean {' or '.join(map(repr, similar))}? {next_step}"
    lines = [f"{error.code}: {message}"]
    steps = " ".join(filter(None, [_end_sentence(next_step), _end_sentence(hint)]))
    return "\n".join([*lines, *([f"Next: {steps}"] if steps else [])])


def _end_sentence(text: str) -> str:
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


_REASONS = {
    "extra_forbidden": "there is no such argument",
    "string_pattern_mismatch": "it is empty or has the wrong form",
}


def format_invalid_arguments(tool: str, error: ValidationError, names: Mapping[str, str]) -> str:
    """The invalid arguments, each with the reason. `names` has the parameter of each argument."""
    arguments = {parameter: name for name, parameter in names.items()}
    messages = []
    for fault in error.errors(include_url=False, include_context=False, include_input=False):
        is_known = fault["type"] != "extra_forbidden"
        parts = (arguments.get(str(part), str(part)) if is_known else str(part) for part in fault["loc"])
        place = ".".join(parts) or "arguments"
        messages.append(f"{place}: {_REASONS.get(fault['type'], fault['msg'])}")
    return f"invalid-input: {'; '.join(messages[:5])}\nNext: call {tool} again with arguments that match its schema."
