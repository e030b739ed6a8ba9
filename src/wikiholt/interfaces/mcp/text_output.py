"""The text of tool results and errors, and cutting text to a token budget. Pure functions."""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar, cast

from pydantic import ValidationError

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
from wikiholt.interfaces.http.problem_details import get_public_message
from wikiholt.interfaces.mcp.result_schemas import (
    ChangesResult,
    Continuation,
    DiffPageResult,
    HistoryResult,
    LinksResult,
    ListAttachmentsResult,
    ListPagesResult,
    ListTagsResult,
    OrphansResult,
    ReadPageResult,
    ReadPagesResult,
    RenamePageResult,
    SearchToolResult,
)
from wikiholt.interfaces.schemas.page_schemas import (
    AttachmentAddDocument,
    AttachmentContentDocument,
    AttachmentRemoveDocument,
    ChangeDocument,
    CommitDocument,
    ListedPageDocument,
    PageDeleteDocument,
    PageWriteDocument,
)
from wikiholt.text.segmentation import estimate_token_spans

T = TypeVar("T")

COMMIT_TEXTS = ("author", "email", "message")
"""The fields of a commit that may be long."""
_MAX_SHOWN_MOVES = 20
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


def take_fitting(items: Iterable[T], get_cost: Callable[[T], int], budget: int, *, at_least: int = 1) -> list[T]:
    """The first items that fit the budget; at least `at_least` if there are that many."""
    taken: list[T] = []
    remaining = budget
    for item in items:
        remaining -= get_cost(item)
        if remaining < 0 and len(taken) >= at_least:
            break
        taken.append(item)
    return taken


def truncate_text(text: str, budget: int) -> str:
    """The start of a text, with an ellipsis if it was cut."""
    spans = list(islice(estimate_token_spans(text[:_MAX_COUNTED_CHARS]), budget + 1))
    if len(spans) <= budget:
        return text if len(text) <= _MAX_COUNTED_CHARS else f"{text[:_MAX_COUNTED_CHARS]}…"
    return f"{text[: spans[budget - 1][1]]}…"


# The text of results, and of errors with the next step.


_NEXT_STEPS: Mapping[type[WikiholtError], str] = {
    PageNotFound: "Call search or list_pages to find the page's path; write_page creates a new page.",
    Forbidden: "Do without it, or ask for a key that allows it.",
    NotWritable: "This wiki cannot be written to from here. Tell the user what you would have written.",
    InputTooLarge: "Split it into several pages.",
    IndexUnavailable: "Wait a few seconds and call it again; read_page works without the index.",
}


def format_compact_json(document: object) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def format_search_result(result: SearchToolResult) -> str:
    """Compact JSON, which hosts expect of a tool named `search`, without fields that only programs need."""
    names = ("wiki", "id", "title", "url", "heading_path", "lines", "confidence", "score", "last_updated")
    results = []
    for page in result["results"]:
        fields = {name: value for name, value in page.items() if name in names and value not in (None, [], "")}
        results.append({**fields, "text": page["text"] or page["snippet"]})
    document: dict[str, Any] = {"results": results}
    if result["notes"]:
        document["notes"] = result["notes"]
    document |= {"stale": result["stale"], "indexed_revision": result["indexed_revision"], "notice": result["notice"]}
    if result["continuation"]:
        document["continuation"] = result["continuation"]
    return format_compact_json(document)


def format_page(page: ReadPageResult) -> str:
    first, last = page["lines"]
    head = f"{page['title']} ({page['path']}), lines {first}-{last} of {page['total_lines']}"
    lines = [f"{head}, revision {page['revision']}", page["notice"], *page["warnings"], *_quote_text(page["content"])]
    return _join_lines(lines, page["continuation"])


def _quote_text(text: str) -> list[str]:
    # The mark is random, so that no page can end its own quotation.
    mark = secrets.token_hex(6)
    return [f"----- page text {mark} -----", text, f"----- end of page text {mark} -----"]


def format_pages(result: ReadPagesResult) -> str:
    lines = [result["notice"]]
    for page in result["pages"]:
        if page["error"] is not None:
            lines.append(f"{page['path']}: {page['error']}")
            continue
        lines.append(f"{page['title']} ({page['path']}), revision {page['revision']}")
        lines += [*_quote_text(page["content"]), *_format_continuation(page["continuation"])]
    return _join_lines(lines, result["continuation"])


def format_diff(result: DiffPageResult) -> str:
    head = f"{result['path']}, from {result['from_revision'] or 'nothing'} to {result['to_revision']}"
    body = _quote_text(result["diff"]) if result["diff"] else ["No line differs."]
    return _join_lines([head, result["notice"], *body], result["continuation"])


def format_tags(result: ListTagsResult) -> str:
    lines = [f"{result['pages']} pages. Numbers are pages."]
    for label in ("tags", "categories", "folders"):
        values = ", ".join(f"{value} ({count})" for value, count in result[label].items())
        lines.append(f"{label}: {values or 'none'}")
    return _join_lines(lines, result["continuation"])


def format_page_list(result: ListPagesResult | OrphansResult) -> str:
    if not result["pages"]:
        return f"No pages here (of {result['total']})." if result["total"] else "No pages match."
    last = result["offset"] + len(result["pages"])
    head = f"Pages {result['offset'] + 1}-{last} of {result['total']}:"
    lines = [head, *map(_format_listed_page, result["pages"])]
    return _join_lines(lines, result["continuation"], stale=result["stale"])


def _format_listed_page(page: ListedPageDocument) -> str:
    details = [f"{page['content_length']} words", *filter(None, [page["category"]]), *page["tags"]]
    return f"- {page['path']}: {page['name']} ({', '.join(details)})"


def format_links(links: LinksResult) -> str:
    totals = links["totals"]
    lines = [
        links["path"],
        *_format_paths(f"links to ({totals['links_to']})", links["links_to"]),
        *_format_paths(f"is linked from ({totals['linked_from']})", links["linked_from"]),
        *_format_paths(f"broken links ({totals['missing']})", links["missing"]),
    ]
    return _join_lines(lines, links["continuation"], stale=links["stale"])


def _format_paths(label: str, paths: Iterable[str]) -> list[str]:
    return [f"{label}:", *(f"- {path}" for path in paths)]


def format_changes(changes: ChangesResult) -> str:
    lines = [f"{_format_commit(entry)} [{', '.join(entry['pages_affected'])}]" for entry in changes["entries"]]
    return _join_lines(lines or ["No commits here."], changes["continuation"])


def format_history(history: HistoryResult) -> str:
    return _join_lines([f"{history['path']}:", *map(_format_commit, history["history"])], history["continuation"])


def _format_commit(commit: CommitDocument | ChangeDocument) -> str:
    return f"- {commit['date']} {commit['revision'][:12]} {commit['author']}: {' '.join(commit['message'].split())}"


def format_write_result(result: PageWriteDocument) -> str:
    if not result["changed"]:
        return f"{result['path']} already has this content; revision {result['revision']}."
    action = "Created" if result["created"] else "Saved"
    warnings = [f"Warning: {warning}" for warning in result["warnings"]]
    return "\n".join([f"{action} {result['path']}; revision {result['revision']}.", *warnings])


def format_rename_result(result: RenamePageResult) -> str:
    moved = [f"{file['old_path']} to {file['new_path']}" for file in result["moved"][:_MAX_SHOWN_MOVES]]
    more = f" and {left} more" if (left := len(result["moved"]) - len(moved)) else ""
    moves = f" Moved too: {', '.join(moved)}{more}." if moved else ""
    links = f" Links were changed on: {', '.join(result['updated_pages'])}." if result["updated_pages"] else ""
    rest = f" {result['left_out']} more pages moved or changed." if result["left_out"] else ""
    return f"{result['old_path']} is now {result['new_path']}; revision {result['revision']}.{moves}{links}{rest}"


def format_delete_result(result: PageDeleteDocument) -> str:
    return f"Deleted {result['path']}; commit {result['revision']}. Its history is kept."


def format_attachments(result: ListAttachmentsResult) -> str:
    files = result["attachments"]
    lines = [f"{file['filename']} ({file['mime_type']}, {file['size']} bytes): {file['uri']}" for file in files]
    if result["continuation"] is not None:
        lines.append(result["continuation"]["message"])
    return "\n".join(lines) or "The page has no attachments."


def format_attachment(result: AttachmentContentDocument) -> str:
    return f"{result['filename']} ({result['mime_type']}, {result['size']} bytes), in base64:\n{result['content']}"


def format_attachment_added(result: AttachmentAddDocument) -> str:
    verb = "Attached" if result["created"] else "Replaced"
    return f"{verb} {result['filename']} of {result['path']}; revision {result['revision']}."


def format_attachment_removed(result: AttachmentRemoveDocument) -> str:
    return f"Deleted {result['filename']} of {result['path']}; revision {result['revision']}."


def _join_lines(lines: Sequence[str], continuation: Continuation | None, *, stale: bool = False) -> str:
    note = ["The index is behind the newest commit."] if stale else []
    return "\n".join([*lines, *note, *_format_continuation(continuation)])


def _format_continuation(continuation: Continuation | None) -> list[str]:
    return (
        [f"{continuation['message']} Next: {continuation['tool']} {format_compact_json(continuation['arguments'])}"]
        if continuation
        else []
    )


def format_error(error: WikiholtError, similar_paths: Iterable[str] = ()) -> str:
    """The public message of an error and the next step. Internal details are left out."""
    message, hint = get_public_message(error)
    next_step = next((_NEXT_STEPS[kind] for kind in type(error).__mro__ if kind in _NEXT_STEPS), "")
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
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    messages = [
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {_format_fault(fault['type'], fault['msg'])}"
        for fault in faults
    ]
    return f"bad-input: {'; '.join(messages[:5])}\nNext: call {tool} again with arguments that match its schema."


def _format_fault(kind: str, message: str) -> str:
    return "there is no such argument" if kind == "extra_forbidden" else message
