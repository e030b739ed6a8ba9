"""The tools that read the text of pages and files, with results cut to the token budget."""

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from wikiholt.domain.page import Heading, PageContent
from wikiholt.errors import InvalidPage, PageNotFound, WikiholtError
from wikiholt.interfaces.http.problem_details import get_public_message
from wikiholt.interfaces.mcp.resources import format_attachment_uri
from wikiholt.interfaces.mcp.result_schemas import (
    DATA_NOTICE,
    Continuation,
    DiffPageResult,
    FetchResult,
    OutlineEntry,
    PageText,
    ReadPageResult,
    ReadPagesResult,
)
from wikiholt.interfaces.mcp.text_output import (
    COMMIT_TEXTS,
    TextPart,
    cut_lines,
    estimate_json_tokens,
    estimate_tokens,
    fit_to_budget,
    format_compact_json,
    format_diff,
    format_page,
    format_pages,
    shorten_fields,
    take_fitting,
    truncate_text,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    AttachmentArguments,
    DiffPageArguments,
    FetchArguments,
    ReadPageArguments,
    ReadPagesArguments,
)
from wikiholt.interfaces.schemas.common import build_document, build_documents, format_date
from wikiholt.interfaces.schemas.page_schemas import (
    AttachmentContentDocument,
    CommitDocument,
    build_attachment_content_document,
)
from wikiholt.wikis.session import WikiSession

_MAX_HEADINGS = 60
_MIN_COMMIT_SHARE = 150
"""Tokens of content below which read_page leaves out the last commit."""
_MIN_PAGE_TOKENS = 150
"""Tokens that a page of several gets at least; the pages that then do not fit are left for the next call."""
_MAX_COMMITS = 1000
"""Commits of the page that are searched for the one before."""
_MAX_DIFF_LINES = 5000
"""Lines per side after the first difference: more take too long to compare."""
_BASE64_CHARS_PER_TOKEN = 2
_PAGE_ID_PATTERN = re.compile(r"(?s)(.+)#L([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")


def read_page(wiki: WikiSession, params: ReadPageArguments, budget: int) -> ReadPageResult:
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(params.path), params.revision)
    lines = page.content.split("\n")
    first, last = _resolve_line_range(page, lines, params)
    path = wiki.path_style.to_display_path(page.path)
    arguments: dict[str, Any] = {"path": path} | params.model_dump(include={"max_tokens"}, exclude_none=True)
    if params.revision:
        arguments["revision"] = params.revision
    if last < len(lines):
        arguments["to_line"] = last
    commit = build_document(CommitDocument, page.last_commit) if page.last_commit else None
    outline = build_documents(OutlineEntry, page.headings[:_MAX_HEADINGS])

    def build(share: int) -> ReadPageResult:
        part = cut_lines(lines, first, last, params.from_character, share)
        document = build_document(
            ReadPageResult,
            page,
            wiki.path_style,
            title=wiki.path_style.to_display_title(page.name, page.path),
            content=part.text,
            lines=[part.first, part.last],
            total_lines=len(lines),
            outline=take_fitting(outline, estimate_json_tokens, share // 4, at_least=0),
            category=page.metadata.category,
            tags=page.metadata.tags,
            last_updated=page.metadata.last_updated,
            last_commit=shorten_fields(commit, COMMIT_TEXTS, share // 10)
            if commit and share >= _MIN_COMMIT_SHARE
            else None,
            warnings=[*page.warnings, *page.notes],
            notice=DATA_NOTICE,
            continuation=_build_part_continuation(part, last, "read_page", arguments),
        )
        return shorten_fields(document, ("title", "category", "tags", "warnings"), share // 8)

    return fit_to_budget(build, format_page, budget)


def fetch_page(wiki: WikiSession, params: FetchArguments, budget: int) -> FetchResult:
    path, first, last = params.id, 1, None
    if match := _PAGE_ID_PATTERN.fullmatch(params.id):
        path, first, last = match[1], int(match[2]), int(match[3]) if match[3] else None
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(path))
    lines = page.content.split("\n")
    if first > len(lines):
        raise _build_no_line_error(first, lines)
    end = max(first, min(last or len(lines), len(lines)))
    display_path = wiki.path_style.to_display_path(page.path)

    def build(share: int) -> FetchResult:
        part = cut_lines(lines, first, end, 0, share)
        document: FetchResult = {
            "id": params.id,
            "title": wiki.path_style.to_display_title(page.name, page.path),
            "text": part.text,
            "url": wiki.handle.build_link(page.path),
            "metadata": {
                "path": display_path,
                "lines": [part.first, part.last],
                "total_lines": len(lines),
                "revision": page.revision,
                "last_updated": format_date(page.metadata.last_updated),
                "notice": DATA_NOTICE,
                "continuation": _build_fetch_continuation(part, end, display_path, len(lines), params.max_tokens),
            },
        }
        return shorten_fields(document, ("title",), share // 8)

    return fit_to_budget(build, format_compact_json, budget)


def _build_fetch_continuation(
    part: TextPart, end: int, path: str, total_lines: int, max_tokens: int | None
) -> Continuation | None:
    """The call of fetch with the next line, or of read_page within a line."""
    budget = {"max_tokens": max_tokens} if max_tokens else {}
    to_line = {"to_line": end} if end < total_lines else {}
    continuation = _build_part_continuation(part, end, "read_page", {"path": path, **to_line, **budget})
    if continuation and part.next_position and not part.next_position[1]:
        line_range = f"#L{part.next_position[0]}" + (f"-{end}" if to_line else "")
        arguments = {"id": f"{path}{line_range}", **budget}
        return {"message": continuation["message"], "tool": "fetch", "arguments": arguments}
    return continuation


def _resolve_line_range(page: PageContent, lines: Sequence[str], params: ReadPageArguments) -> tuple[int, int]:
    """The requested range of lines. Raises InvalidPage if the page does not have it."""
    first, last = 1, len(lines)
    if params.section:
        first, last = find_section(page.headings, params.section, last)
    if params.from_line is not None:
        first = max(first, params.from_line)
    if params.to_line is not None:
        last = min(last, params.to_line)
    if first > len(lines):
        raise _build_no_line_error(first, lines)
    if first > last:
        raise InvalidPage(f"the range of lines {first} to {last} is empty", hint="to_line must be at least from_line")
    return first, last


def find_section(headings: Sequence[Heading], section: str, end: int) -> tuple[int, int]:
    """The lines of a section with its subsections: up to the next heading of the same or a higher level."""
    text = section.strip().lstrip("#").strip()
    for matches in (_is_same_heading, _is_matching_heading):
        for number, heading in enumerate(headings):
            if matches(heading, text):
                ends = (other.line - 1 for other in headings[number + 1 :] if other.level <= heading.level)
                return heading.line, next(ends, end)
    known = ", ".join(repr(heading.text) for heading in headings[:20])
    raise InvalidPage(
        f"the page has no section {section[:200]!r}",
        hint=f"its headings are: {known}" if known else "it has no headings; read it by lines",
    )


def _is_same_heading(heading: Heading, text: str) -> bool:
    return text in (heading.text, heading.anchor)


def _is_matching_heading(heading: Heading, text: str) -> bool:
    return text.casefold() == heading.text.casefold()


def _build_part_continuation(part: TextPart, last: int, tool: str, arguments: dict[str, Any]) -> Continuation | None:
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


def _build_no_line_error(line: int, lines: Sequence[str]) -> InvalidPage:
    return InvalidPage(f"the page has no line {line}", hint=f"it has {len(lines)} lines")


def read_pages(wiki: WikiSession, params: ReadPagesArguments, budget: int) -> ReadPagesResult:
    paths = list(dict.fromkeys(params.paths))[: max(1, budget // _MIN_PAGE_TOKENS)]
    pages = [_read_or_explain(wiki, path) for path in paths]
    rest = [path for path in dict.fromkeys(params.paths) if path not in paths]
    continuation: Continuation | None = None
    if rest:
        arguments = params.model_dump(exclude_defaults=True) | {"paths": rest}
        continuation = {"message": f"{len(rest)} more pages.", "tool": "read_pages", "arguments": arguments}

    def build(share: int) -> ReadPagesResult:
        texts: list[PageText] = []
        remaining = share
        for number, (path, page) in enumerate(zip(paths, pages, strict=True)):
            # A short page leaves its tokens to the pages after it.
            part = _build_page_text(wiki, path, page, max(1, remaining // (len(paths) - number)))
            remaining -= estimate_tokens(part["content"])
            texts.append(part)
        return {"pages": texts, "notice": DATA_NOTICE, "continuation": continuation}

    return fit_to_budget(build, format_pages, budget)


def _read_or_explain(wiki: WikiSession, path: str) -> PageContent | str:
    """The page, or why it cannot be read: the other pages are still of use."""
    try:
        return wiki.handle.pages.read(wiki.path_style.to_git_path(path))
    except WikiholtError as error:
        if error.status >= 500:
            raise
        message, hint = get_public_message(error)
        is_named = isinstance(error, PageNotFound) and error.current_path
        return f"{error.code}: {message}; {hint}" if is_named else f"{error.code}: {message}"


def _build_page_text(wiki: WikiSession, path: str, page: PageContent | str, share: int) -> PageText:
    if isinstance(page, str):
        return {
            "path": path,
            "title": "",
            "content": "",
            "lines": [],
            "revision": None,
            "error": truncate_text(page, share),
            "continuation": None,
        }
    lines = page.content.split("\n")
    part = cut_lines(lines, 1, len(lines), 0, share)
    display_path = wiki.path_style.to_display_path(page.path)
    text: PageText = {
        "path": display_path,
        "title": wiki.path_style.to_display_title(page.name, page.path),
        "content": part.text,
        "lines": [part.first, part.last],
        "revision": page.revision,
        "error": None,
        "continuation": _build_part_continuation(part, len(lines), "read_page", {"path": display_path}),
    }
    return shorten_fields(text, ("title",), share // 8)


def diff_page(wiki: WikiSession, params: DiffPageArguments, budget: int) -> DiffPageResult:
    path = wiki.path_style.to_git_path(params.path)
    new = wiki.handle.pages.read(path, params.to_revision)
    old = _read_older(wiki, path, new, params.from_revision)
    names = old.revision if old else "", new.revision
    lines = list(_compare(old.content.split("\n") if old else [], new.content.split("\n"), *names))
    first = min(params.from_line, max(1, len(lines)))
    arguments = params.model_dump(exclude_defaults=True) | {"from_revision": names[0] or None, "to_revision": names[1]}
    arguments = {name: value for name, value in arguments.items() if value is not None}

    def build(share: int) -> DiffPageResult:
        part = cut_lines(lines, first, len(lines), params.from_character, share)
        return {
            "path": wiki.path_style.to_display_path(new.path),
            "from_revision": names[0] or None,
            "to_revision": names[1],
            "diff": part.text,
            "notice": DATA_NOTICE,
            "continuation": _build_part_continuation(part, len(lines), "diff_page", arguments),
        }

    return fit_to_budget(build, format_diff, budget)


def _read_older(wiki: WikiSession, path: str, new: PageContent, revision: str | None) -> PageContent | None:
    """The page at the revision, or before the commit that made `new`; None if that commit created it."""
    if revision is None:
        revisions = [commit.revision for commit in wiki.handle.pages.read_history(path, _MAX_COMMITS)]
        position = revisions.index(new.revision) + 1 if new.revision in revisions else len(revisions)
        if position >= len(revisions):
            return None
        revision = revisions[position]
    try:
        return wiki.handle.pages.read(path, revision)
    except PageNotFound:
        raise InvalidPage(
            f"there is no page {path[:200]!r} at revision {revision[:12]}",
            hint="it did not exist yet or had another path; page_history lists its commits",
        ) from None


def _compare(old: Sequence[str], new: Sequence[str], old_name: str, new_name: str) -> Iterator[str]:
    """The unified diff in lines. Raises InvalidPage."""
    start = next((n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    if max(len(old), len(new)) - start > _MAX_DIFF_LINES:
        raise InvalidPage(
            f"more than {_MAX_DIFF_LINES:,} lines follow the first difference",
            hint="read both revisions with read_page instead",
        )
    return difflib.unified_diff(old, new, old_name[:12] or "none", new_name[:12], lineterm="")


def download_attachment(wiki: WikiSession, params: AttachmentArguments, budget: int) -> AttachmentContentDocument:
    attachment = wiki.handle.pages.read_attachment(wiki.path_style.to_git_path(params.path), params.filename)
    document = build_attachment_content_document(attachment, wiki.path_style)
    if len(document["content"]) > budget * _BASE64_CHARS_PER_TOKEN:
        uri = format_attachment_uri(params.path, params.filename)
        raise InvalidPage(f"The file has {document['size']:,} bytes: read the resource {uri} instead.")
    return document
