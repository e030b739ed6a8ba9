"""What agents get of the documents of operations: structured content that fits the budget of a call, and its text."""

import json
import secrets
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, cast

from pydantic import Field

from wikiholt.api.documents.search_documents import format_did_you_mean
from wikiholt.api.operations.page_parts import split_lines
from wikiholt.api.operations.parameters import Count
from wikiholt.errors import InvalidPage
from wikiholt.interfaces.mcp.budget import (
    TextPart,
    cut_lines,
    estimate_tokens,
    fit_to_budget,
    format_compact_json,
    shorten_fields,
    take_fitting,
    take_shortened,
    truncate_text,
)
from wikiholt.interfaces.mcp.resources import format_attachment_uri
from wikiholt.interfaces.mcp.tool import DATA_NOTICE, AnswerArguments, PagedArguments, ToolCall

_EMPTY: Sequence[Any] = (None, "", [], {})


def _drop_empty(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value not in _EMPTY}


def build_continuation(message: str, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A note on what was left out, and the call that returns it."""
    return {"message": message, "tool": tool, "arguments": arguments}


# Searches. Text and structured content are the same, because some clients read only one of them.


_DEFAULT_HITS = 8
_SHORT_BYTES = 1950
"""Size of an answer with the default number of hits; with the structured content it is 4 kB."""
_MIN_SNIPPET_BYTES, _MIN_LINE_BYTES = 400, 80
"""What snippets get at least in all, and a snippet so that it says something."""
_LOCATION_FIELDS = ("wiki", "id", "title", "section", "lines", "confidence", "also_on", "now")
_MAX_PLACES = 4
_FULL_FIELDS = (*_LOCATION_FIELDS, "url", "score", "category", "tags", "last_updated", "text")
_HIT_TEXTS = ("title", "section", "category", "tags")
_STALE_NOTE = "The index is behind the newest commit: the latest changes may be missing."
_NOTHING_RELEVANT_NOTE = (
    "Nothing relevant was found: the pages listed, if any, are only the closest ones. Say so, or search with other "
    "words, or use list_pages."
)


class SearchArguments(AnswerArguments):
    """How much of each hit the answer has."""

    detail: Literal["ids", "short", "full"] = Field(
        "short", description="Where the hits are; with a snippet; or with the entire passage."
    )


class PastArguments(AnswerArguments):
    """Few agents may search the past, and each of them pays for its arguments."""

    detail: ClassVar[str] = "short"


def present_search(document: Any, call: ToolCall) -> Any:
    """Hits by id (the path of the page), with what `detail` asks for, as far as it fits."""
    hits = [
        {
            **hit,
            "id": hit["path"],
            "title": hit["name"],
            "also_on": [place["path"] for place in hit["also_on"][:_MAX_PLACES]],
            "now": _describe_now(hit.get("now")),
        }
        for hit in document["results"]
    ]
    notes = list(document["notes"])
    is_irrelevant = document["nothing_relevant"] or not (hits or document["meaning_ready"] < 1)
    if is_irrelevant:
        notes.insert(0, _NOTHING_RELEVANT_NOTE)
    if document["did_you_mean"]:
        correction = format_did_you_mean(document["query"], document["did_you_mean"])
        notes.insert(0, f"{correction} For the original words, search for: {document['as_typed']}")
    if document["stale"]:
        notes.append(_STALE_NOTE)

    def build(share: int) -> Any:
        flags = {"nothing_relevant": is_irrelevant or None, "stale": document["stale"] or None}
        did_you_mean = truncate_text(document["did_you_mean"] or "", share // 4)
        revision = (document["indexed_revision"] or "")[:12]
        flags |= {"at": document["at"]["date"][:10]} if "at" in document else {}
        answer = {"notes": notes, "did_you_mean": did_you_mean, "indexed_revision": revision, **flags}
        answer = _drop_empty(answer | {"notice": DATA_NOTICE})
        size = _SHORT_BYTES * max(len(hits), _DEFAULT_HITS) // _DEFAULT_HITS - _count_bytes(answer)
        results, left_out = _fit_hits(hits, call.answer.detail, share, size)
        if left_out:
            arguments = {**call.sent, "max_tokens": min(50_000, call.budget * 3)}
            answer["continuation"] = build_continuation(left_out, call.tool, arguments)
        return {"results": results, **answer}

    return fit_to_budget(build, format_compact_json, call.budget)


def _describe_now(now: Any) -> str:
    """What became of the page of a hit of the past; empty if it is the same."""
    if not now:
        return ""
    removed = now["removed"]
    if now["path"] is None:
        by = f" {removed['date'][:10]} by {removed['author']} in {removed['revision'][:12]}" if removed else ""
        return f"removed{by}"
    return f"changed, now {now['path']}"


def _count_bytes(value: Any) -> int:
    return len(format_compact_json(value).encode())


def _fit_hits(hits: Sequence[Any], detail: str, budget: int, size: int) -> tuple[list[Any], str]:
    """The hits in order, and a note if some or their passages are left out. Snippets end where `size` does."""
    fitting = take_fitting([_build_hit(hit, detail, budget) for hit in hits], budget)
    omitted = len(hits) - len(fitting)
    note = f"{omitted} more results did not fit; use more max_tokens, or narrow the search." if omitted else ""
    if detail == "ids":
        return fitting, note
    tokens = budget - estimate_tokens(format_compact_json(fitting))
    remaining = max(_MIN_SNIPPET_BYTES, size - _count_bytes(fitting)) if detail == "short" else sys.maxsize
    for hit, source in zip(fitting, hits, strict=False):
        text = source["snippet"] if detail == "short" else source["text"]
        if len(text.encode()) > remaining:
            if remaining < _MIN_LINE_BYTES:
                break
            start = text.encode()[:remaining].decode(errors="ignore")
            text = f"{start.rpartition(' ')[0] or start}…"
        if estimate_tokens(text) > tokens:
            note = note or ("Some passages did not fit; read the pages." if detail == "full" else "")
            if hit is not fitting[0]:
                continue
            text = truncate_text(text, max(1, min(tokens, budget // 2)))
        hit["text"] = text
        tokens -= estimate_tokens(text)
        remaining -= len(text.encode()) + len(',"text":""')
    return fitting, note


def _build_hit(hit: Any, detail: str, budget: int) -> dict[str, Any]:
    names = _FULL_FIELDS if detail == "full" else (*_LOCATION_FIELDS, "url")
    fields = {name: hit[name] for name in names if name != "text"}
    if "://" not in fields["url"]:  # a path, as the id is
        del fields["url"]
    if fields["section"] == fields["title"]:
        del fields["section"]
    return _drop_empty(shorten_fields(fields, [name for name in _HIT_TEXTS if name in fields], budget // 8))


def _build_written(written: Any, budget: int) -> dict[str, Any] | None:
    """What a language model wrote, with the places that it cites."""
    if written is None:
        return None
    places = dict(enumerate(written["passages"], 1))
    sentences = [
        {
            "text": each["text"],
            "supported": each["supported"],
            **({"reason": each["reason"]} if each["reason"] else {}),
            "ids": list(dict.fromkeys(places[number]["path"] for number in each["citations"] if number in places)),
        }
        for each in written["sentences"]
    ]
    return _drop_empty(
        {
            "model": written["model"],
            "sentences": take_shortened(sentences, ("text", "reason"), budget),
            "supported_share": written["supported_share"],
            "note": written["note"],
        }
    )


_NOT_SAID_NOTE = "The wiki does not say; the results are the closest pages."


def present_answer(document: Any, call: ToolCall) -> Any:
    """The sentences with the lines of their pages; or the closest pages, and a note that says so."""
    notes = list(document["notes"]) + ([_STALE_NOTE] if document["stale"] else [])
    if document["answered"]:
        results = [
            {
                "id": each["path"],
                "lines": [each["line"], each["last_line"]],
                "heading": (each["heading_path"] or [""])[-1],
                "text": each["text"],
            }
            for each in document["sentences"]
        ]
    else:
        notes[:0] = [_NOT_SAID_NOTE] if document["meaning_ready"] == 1 else []
        results = [{"id": hit["path"], "title": hit["name"], "lines": hit["lines"]} for hit in document["closest"]]

    def build(share: int) -> Any:
        answer = {
            "results": take_shortened(results, ("title", "text"), share),
            "answered": document["answered"],
            "probability": document["probability"],
            "written": _build_written(document["written"], share),
            "notes": notes,
            "indexed_revision": (document["indexed_revision"] or "")[:12],
            "notice": DATA_NOTICE,
        }
        return _drop_empty(answer) | {"answered": document["answered"]}

    return fit_to_budget(build, format_compact_json, call.budget)


# Pages


_MAX_HEADINGS = 60
_MIN_PAGE_TOKENS = 150
"""Tokens that a page of several gets at least; the pages that then do not fit are left for the next call."""


class TextArguments(AnswerArguments):
    """Where the text of an answer starts within its first line."""

    from_character: Count = Field(0, ge=0, description="Characters of the first line to skip, for very long lines.")


def present_pages(document: Any, call: ToolCall) -> Any:
    """One page, or several that share the budget, each with the call that returns the rest of it."""
    pages = document["pages"]
    if len(pages) == 1:
        return fit_to_budget(
            lambda share: {**_cut_page(pages[0], call, share), "notice": DATA_NOTICE}, format_page, call.budget
        )
    count = max(1, call.budget // _MIN_PAGE_TOKENS)
    rest = [page["path"] for page in pages[count:]]

    def build(share: int) -> Any:
        texts: list[Any] = []
        remaining = share
        for number, page in enumerate(pages[:count], 1):
            # A short page leaves its tokens to the pages after it.
            texts.append(_cut_page(page, call, max(1, remaining // (len(pages[:count]) - number + 1))))
            remaining -= estimate_tokens(texts[-1].get("content", ""))
        answer: dict[str, Any] = {"pages": texts, "notice": DATA_NOTICE}
        if rest:
            arguments = {**call.sent, "paths": rest}
            answer["continuation"] = build_continuation(f"{len(rest)} more pages.", call.tool, arguments)
        return answer

    return fit_to_budget(build, format_page, call.budget)


def _cut_page(page: Any, call: ToolCall, share: int) -> dict[str, Any]:
    """The page with the lines that fit, the call that returns the others, and then also its headings."""
    if page["error"]:
        return {"path": page["path"], "error": truncate_text(page["error"], share)}
    first, last = page["lines"]
    character = getattr(call.answer, "from_character", 0)
    part = cut_lines(page["content"].split("\n", last - first), first, character, share)
    cut: dict[str, Any] = {**page, "content": part.text, "lines": [part.first, part.last], "outline": []}
    if part.next_position:
        kept = {name: call.sent[name] for name in ("revision", "max_tokens") if name in call.sent}
        end = {"to_line": last} if last < page["total_lines"] else {}
        cut["continuation"] = _continue_text(part, last, "read_page", {"paths": [page["path"]], **kept, **end})
        cut["outline"] = take_fitting(page["outline"][:_MAX_HEADINGS], share // 4, at_least=0)
    cut = shorten_fields(cut, ("title", "category", "tags", "warnings"), share // 8)
    if "://" not in cut["url"]:
        del cut["url"]
    return _drop_empty(cut) | {"content": part.text}


def _continue_text(part: TextPart, last: int, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """The call that returns the text after this part, up to the line `last`."""
    assert part.next_position is not None
    line, character = part.next_position
    place = f"line {line} of {last}" + (f", character {character}" if character else "")
    start = {"from_line": line} | ({"from_character": character} if character else {})
    return build_continuation(f"The result ends before {place}.", tool, {**arguments, **start})


def format_page(answer: Any) -> str:
    """The text of pages between two lines that no page can contain."""
    lines = [answer["notice"]]
    for page in answer.get("pages", (answer,)):
        if "error" in page:
            lines.append(f"{page['path']}: {page['error']}")
            continue
        first, last = page["lines"]
        head = f"{page['title']} ({page['path']}), lines {first}-{last} of {page['total_lines']}"
        lines += [f"{head}, revision {page['revision']}", *page.get("warnings", ()), *_quote_text(page["content"])]
        if "continuation" in page and "outline" in page:
            lines.append(f"Headings: {'; '.join(page['outline'])}")
        lines += _format_continuation(page) if page is not answer else []
    return "\n".join([*lines, *_format_continuation(answer)])


def _quote_text(text: str) -> list[str]:
    # The mark is random, so that no page can end its own quotation.
    mark = secrets.token_hex(6)
    return [f"----- page text {mark} -----", text, f"----- end of page text {mark} -----"]


def present_fetched(document: Any, call: ToolCall) -> Any:
    """A page in the form that ChatGPT expects of a tool named `fetch`."""

    def build(share: int) -> Any:
        page = _cut_page(document["pages"][0], call, share)
        continuation = page.get("continuation")
        if continuation and "from_character" not in continuation["arguments"]:
            arguments = continuation["arguments"]
            last = f"-{arguments['to_line']}" if "to_line" in arguments else ""
            kept = {"max_tokens": arguments["max_tokens"]} if "max_tokens" in arguments else {}
            of_rest = f"{page['path']}#L{arguments['from_line']}{last}"
            page["continuation"] = build_continuation(continuation["message"], call.tool, {"id": of_rest, **kept})
        names = ("path", "lines", "total_lines", "revision", "last_updated", "continuation")
        return {
            "id": call.sent["id"],
            "title": page["title"],
            "text": page["content"],
            "url": document["pages"][0]["url"],
            "metadata": {name: page[name] for name in names if name in page} | {"notice": DATA_NOTICE},
        }

    return fit_to_budget(build, format_compact_json, call.budget)


class DiffArguments(TextArguments):
    """Where the text of a diff starts."""

    from_line: Count = Field(1, ge=1, description="The first line of the diff.")


def present_diff(document: Any, call: ToolCall) -> Any:
    """The lines of the diff that fit, and the call that returns the others."""
    lines = split_lines(document["diff"])
    first = min(call.answer.from_line, max(1, len(lines)))
    names = ("from_revision", "to_revision")
    arguments = {**call.sent, **{name: document[name] for name in names if document[name]}}

    def build(share: int) -> Any:
        part = cut_lines(lines[first - 1 :], first, call.answer.from_character, share)
        answer = {**document, "diff": part.text, "notice": DATA_NOTICE}
        if part.next_position:
            answer["continuation"] = _continue_text(part, len(lines), call.tool, arguments)
        return answer

    return fit_to_budget(build, format_diff, call.budget)


def format_diff(answer: Any) -> str:
    head = f"{answer['path']}, from {answer['from_revision'] or 'nothing'} to {answer['to_revision']}"
    body = _quote_text(answer["diff"].removesuffix("\n")) if answer["diff"] else ["No line differs."]
    return "\n".join([head, answer["notice"], *body, *_format_continuation(answer)])


# Lists


_BASE64_CHARS_PER_TOKEN = 2
_HIDDEN_FIELDS = ("file", "email", "indexed_revision", "position", "more", "next_offset")
_RENAMED_FIELDS: Mapping[str, str] = {"content_length": "words"}
_LONG_FIELDS = ("name", "category", "tags", "author", "email", "message", "pages_affected")


def present_lists(document: Any, call: ToolCall) -> Any:
    """The entries of the document's lists that fit, and the call that returns the others.

    All lists end at the same position, so that one offset continues all of them.
    """
    lists = {name: value for name, value in document.items() if isinstance(value, list)}
    is_whole = isinstance(call.answer, PagedArguments)
    paging = call.answer if is_whole else call.parameters
    start, end = (paging.offset, paging.offset + paging.limit) if is_whole else (0, paging.limit)
    totals = {"totals": {name: len(items) for name, items in lists.items()}} if is_whole and len(lists) > 1 else {}

    hidden = (*_HIDDEN_FIELDS, "total") if "next_offset" in document else _HIDDEN_FIELDS

    def build(share: int) -> Any:
        shown = {
            name: take_shortened(items[start:end], _LONG_FIELDS, share // len(lists)) for name, items in lists.items()
        }
        cut = [len(shown[name]) for name, items in lists.items() if start + len(shown[name]) < len(items)]
        if cut:
            shown = {name: items[: min(cut)] for name, items in shown.items()}
        shown = {name: [_clean_entry(item) for item in items] for name, items in shown.items()}
        answer = {name: value for name, value in document.items() if name not in hidden} | shown | totals
        following = _find_next_offset(document, lists, paging.offset, min(cut) if cut else None, is_whole=is_whole)
        if following is not None:
            arguments = {**call.sent, "offset": following}
            answer["continuation"] = build_continuation("There are more entries.", call.tool, arguments)
        return answer

    return fit_to_budget(build, format_lines, call.budget)


def _clean_entry(entry: Any) -> Any:
    """The entry without what is of no use to an agent; 12 digits of a commit are enough for every tool."""
    if not isinstance(entry, dict):
        return entry
    kept = {_RENAMED_FIELDS.get(name, name): value for name, value in entry.items() if name not in _HIDDEN_FIELDS}
    return _drop_empty(kept | {"revision": kept["revision"][:12]} if "revision" in kept else kept)


def _find_next_offset(
    document: Any, lists: dict[str, list[Any]], offset: int, cut: int | None, *, is_whole: bool
) -> int | None:
    """The offset of the first entry that is left out, or None."""
    if cut is not None:
        first = next(iter(lists.values()))[cut] if "next_offset" in document else {}
        return int(first.get("position", offset + cut))
    if is_whole:
        return None
    if "next_offset" in document:
        return cast(int | None, document["next_offset"])
    done = offset + max(map(len, lists.values()))
    return done if done < document["total"] else None


def present_facets(document: Any, call: ToolCall) -> Any:
    """Each value with its number of pages."""
    lists = {name: value for name, value in document.items() if isinstance(value, list)} | document["properties"]
    answer = present_lists({"pages": document["pages"], **lists, "stale": document["stale"]}, call)
    return {
        name: {facet["value"]: facet["count"] for facet in value} if name in lists else value
        for name, value in answer.items()
    }


def present_written(document: Any, call: ToolCall) -> Any:
    """The document with the entries of its lists that fit, and the number of those left out."""
    lists = {name: value for name, value in document.items() if isinstance(value, list)}

    def build(share: int) -> Any:
        shown = {name: take_fitting(items, share // len(lists), at_least=0) for name, items in lists.items()}
        left_out = sum(len(items) - len(shown[name]) for name, items in lists.items())
        return {**document, **shown, **({"left_out": left_out} if left_out else {})}

    return fit_to_budget(build, format_lines, call.budget)


def present_attachments(document: Any, call: ToolCall) -> Any:
    """The files, each with the URI of its resource."""
    path = document["path"]
    files = [{**file, "uri": format_attachment_uri(path, file["filename"])} for file in document["attachments"]]
    return present_lists({**document, "attachments": files}, call)


def present_attachment(document: Any, call: ToolCall) -> Any:
    """The content of the file. Raises InvalidPage if it is too long."""
    if len(document["content"]) > call.budget * _BASE64_CHARS_PER_TOKEN:
        uri = format_attachment_uri(document["path"], document["filename"])
        raise InvalidPage(f"The file has {document['size']:,} bytes: read the resource {uri} instead.")
    return document


def format_lines(answer: Any) -> str:
    """The fields that have a value, one per line, and the entries of lists."""
    lines: list[str] = []
    for name, value in answer.items():
        if name == "continuation" or value is False or value in _EMPTY:
            continue
        if isinstance(value, list):
            lines += [f"{name}:", *(f"- {_format_entry(entry)}" for entry in value)]
        elif isinstance(value, dict):
            lines.append(f"{name}: {', '.join(f'{key} ({count})' for key, count in value.items())}")
        else:
            lines.append(f"{name}: {_format_value(value)}")
    return "\n".join([*lines, *_format_continuation(answer)])


def _format_entry(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    return "; ".join(f"{name}: {_format_value(value)}" for name, value in entry.items() if value not in _EMPTY)


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return " ".join(str(value).split()) if isinstance(value, str) else json.dumps(value)


def _format_continuation(answer: Any) -> Iterable[str]:
    if rest := answer.get("continuation"):
        yield f"{rest['message']} Next: {rest['tool']} {format_compact_json(rest['arguments'])}"
