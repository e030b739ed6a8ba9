"""How much of something fits: pure functions over texts and lists."""

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

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
from wikiholt.interfaces.mcp.tool_schemas import (
    ChangesResult,
    Continuation,
    FetchResult,
    HistoryResult,
    LinksResult,
    ListPagesResult,
    OrphansResult,
    ReadPageResult,
    SearchToolResult,
)
from wikiholt.interfaces.schemas.page_schemas import (
    ChangeDocument,
    CommitDocument,
    ListedPageDocument,
    PageDeleteDocument,
    PageRenameDocument,
    PageWriteDocument,
)
from wikiholt.text.segmentation import estimate_token_spans

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


# What an agent reads: short text beside the documents, and errors that say what to do next.


_NEXT_STEPS: Mapping[type[WikiholtError], str] = {
    PageNotFound: "Call search or list_pages to find the page's path; write_page makes a new page.",
    Forbidden: "Do without it, or ask for a key that allows it.",
    NotWritable: "This wiki cannot be written to from here. Tell the user what you would have written.",
    InputTooLarge: "Split it into several pages.",
    IndexUnavailable: "Wait a few seconds and call it again; read_page works without the index.",
}


def format_compact_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def format_search_result(result: SearchToolResult) -> str:
    """JSON, which is what the hosts read that know `search` by name; without what only programs need."""
    names = ("id", "title", "url", "heading_path", "lines", "confidence", "score", "last_updated")
    results = []
    for page in result["results"]:
        shown = {name: value for name, value in page.items() if name in names and value not in (None, [], "")}
        results.append({**shown, "text": page["text"] or page["snippet"]})
    document: dict[str, Any] = {"results": results}
    if result["notes"]:
        document["notes"] = result["notes"]
    document |= {"stale": result["stale"], "indexed_revision": result["indexed_revision"], "notice": result["notice"]}
    if result["rest"]:
        document["rest"] = result["rest"]
    return format_compact_json(document)


def format_fetch_result(result: FetchResult) -> str:
    return format_compact_json(result)


def format_page(page: ReadPageResult) -> str:
    first, last = page["lines"]
    head = [
        f"{page['title']} ({page['path']}), lines {first}-{last} of {page['total_lines']}, revision {page['revision']}",
        page["notice"],
        *page["warnings"],
    ]
    # Nobody can write a page that ends its own quotation: the mark is made anew for every answer.
    mark = secrets.token_hex(6)
    body = [f"----- page text {mark} -----", page["content"], f"----- end of page text {mark} -----"]
    return "\n".join([*head, *body, *_format_continuation(page["rest"])])


def format_page_list(result: ListPagesResult | OrphansResult) -> str:
    if not result["pages"]:
        return f"No pages here (of {result['total']})." if result["total"] else "There are no such pages."
    last = result["offset"] + len(result["pages"])
    head = f"Pages {result['offset'] + 1}-{last} of {result['total']}:"
    return "\n".join(
        [
            head,
            *map(_format_listed_page, result["pages"]),
            *_format_stale(stale=result["stale"]),
            *_format_continuation(result["rest"]),
        ]
    )


def _format_listed_page(page: ListedPageDocument) -> str:
    told = [f"{page['content_length']} words", *filter(None, [page["category"]]), *page["tags"]]
    return f"- {page['path']}: {page['name']} ({', '.join(told)})"


def format_links(links: LinksResult) -> str:
    totals = links["totals"]
    lines = [
        links["path"],
        *_format_paths(f"links to ({totals['links_to']})", links["links_to"]),
        *_format_paths(f"is linked from ({totals['linked_from']})", links["linked_from"]),
        *_format_paths(f"links to what is no page ({totals['missing']})", links["missing"]),
    ]
    return "\n".join([*lines, *_format_stale(stale=links["stale"]), *_format_continuation(links["rest"])])


def _format_paths(label: str, paths: Iterable[str]) -> list[str]:
    return [f"{label}:", *(f"- {path}" for path in paths)]


def format_changes(changes: ChangesResult) -> str:
    lines = [f"{_format_commit(each)} [{', '.join(each['pages_affected'])}]" for each in changes["entries"]]
    return "\n".join([*(lines or ["No commits here."]), *_format_continuation(changes["rest"])])


def format_history(history: HistoryResult) -> str:
    return "\n".join(
        [f"{history['path']}:", *map(_format_commit, history["history"]), *_format_continuation(history["rest"])]
    )


def _format_commit(commit: CommitDocument | ChangeDocument) -> str:
    return f"- {commit['date']} {commit['revision'][:12]} {commit['author']}: {' '.join(commit['message'].split())}"


def format_write_result(result: PageWriteDocument) -> str:
    if not result["changed"]:
        return f"{result['path']} held exactly that already; revision {result['revision']}."
    done = "Created" if result["created"] else "Saved"
    warned = [f"Warning: {each}" for each in result["warnings"]]
    return "\n".join([f"{done} {result['path']}; revision {result['revision']}.", *warned])


def format_rename_result(result: PageRenameDocument) -> str:
    followed = f" Links were changed on: {', '.join(result['updated_pages'])}." if result["updated_pages"] else ""
    return f"{result['old_path']} is now {result['new_path']}; revision {result['revision']}.{followed}"


def format_delete_result(result: PageDeleteDocument) -> str:
    return f"Deleted {result['path']}; commit {result['revision']}. Its history is kept."


def _format_stale(*, stale: bool) -> list[str]:
    return ["The index has not reached the newest commit yet."] if stale else []


def _format_continuation(continuation: Continuation | None) -> list[str]:
    return (
        [f"{continuation['told']} Next: {continuation['tool']} {format_compact_json(continuation['arguments'])}"]
        if continuation
        else []
    )


def format_error(error: WikiholtError, similar_paths: Iterable[str] = ()) -> str:
    """What is wrong and what to do next; of what is not the visitor's to know, only that."""
    message, hint = get_public_message(error)
    following = next((_NEXT_STEPS[kind] for kind in type(error).__mro__ if kind in _NEXT_STEPS), "")
    hint = "" if following else hint
    if isinstance(error, TooManyRequests | DatabaseUnavailable):
        following, hint = f"Wait {max(1, error.retry_after):.0f} seconds and call it again.", ""
    if isinstance(error, RevisionMismatch) and error.current:
        following, hint = f"The page is at revision {error.current} now. {_end_sentence(hint)}", ""
    if near := list(similar_paths):
        following = f"Did you mean {' or '.join(map(repr, near))}? {following}"
    lines = [f"{error.code}: {message}"]
    steps = " ".join(filter(None, [_end_sentence(following), _end_sentence(hint)]))
    return "\n".join([*lines, *([f"Next: {steps}"] if steps else [])])


def _end_sentence(text: str) -> str:
    return text if not text or text.endswith((".", "?", "!")) else f"{text}."


def format_invalid_arguments(tool: str, error: ValidationError) -> str:
    """What is wrong with the arguments, each by its name."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    told = [
        f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {_format_fault(each['type'], each['msg'])}"
        for each in faults
    ]
    return f"bad-input: {'; '.join(told[:5])}\nNext: call {tool} again with arguments that fit its schema."


def _format_fault(kind: str, message: str) -> str:
    return "there is no such argument" if kind == "extra_forbidden" else message
