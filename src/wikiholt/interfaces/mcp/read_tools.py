"""The tools that read the text of pages, with results cut to the token budget."""

import re
from collections.abc import Sequence
from itertools import chain
from typing import Any

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document, build_documents, format_date
from wikiholt.api.documents.page_documents import CommitDocument
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.page import Heading, PageContent
from wikiholt.errors import InvalidPage, PageNotFound, WikiholtError
from wikiholt.interfaces.mcp.mcp_tool import DATA_NOTE, tool
from wikiholt.interfaces.mcp.text_output import (
    COMMIT_TEXTS,
    TextPart,
    build_part_continuation,
    cut_lines,
    estimate_tokens,
    fit_to_budget,
    format_compact_json,
    format_continuation,
    join_lines,
    quote_text,
    shorten_fields,
    split_lines,
    take_fitting,
    truncate_text,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    DATA_NOTICE,
    TEXT_PATTERN,
    ArgumentValues,
    BudgetedArguments,
    Continuation,
    PagePathArgument,
    RevisionArgument,
)
from wikiholt.wikis.session import WikiSession

_MAX_HEADINGS = 60
_MIN_COMMIT_SHARE = 150
"""Tokens of content below which read_page leaves out the last commit."""
_MIN_PAGE_TOKENS = 150
"""Tokens that a page of several gets at least; the pages that then do not fit are left for the next call."""
_MAX_PAGES_PER_READ = 20
_PAGE_ID_PATTERN = re.compile(r"(?s)(.+)#L([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")


class ReadPageArguments(BudgetedArguments):
    path: PagePathArgument
    section: str = Field("", max_length=500, description="Only the section under this heading (its text or anchor).")
    from_line: int | None = Field(None, ge=1, description="The first line to read.")
    to_line: int | None = Field(None, ge=1, description="The last line to read.")
    from_character: int = Field(0, ge=0, description="Characters of the first line to skip, for very long lines.")
    revision: RevisionArgument = Field(None, description="A commit, by 7 or more digits; the default is the newest.")


class OutlineEntry(TypedDict):
    """A heading of a page."""

    level: int
    text: str
    anchor: str
    line: int


class ReadPageResult(TypedDict):
    """A page, or the requested lines that fit; a write requires `revision`."""

    path: str
    title: str
    content: str
    lines: list[int]
    total_lines: int
    outline: list[OutlineEntry]
    category: str | None
    tags: list[str]
    last_updated: str | None
    revision: str
    read_at: str
    last_commit: CommitDocument | None
    warnings: list[str]
    notice: str
    continuation: Continuation | None


def _format_page(page: ReadPageResult) -> str:
    first, last = page["lines"]
    head = f"{page['title']} ({page['path']}), lines {first}-{last} of {page['total_lines']}"
    lines = [f"{head}, revision {page['revision']}", page["notice"], *page["warnings"], *quote_text(page["content"])]
    return join_lines(lines, page["continuation"])


@tool(
    "Read a page",
    "Read an entire page, a section, a range of lines, or an older revision. A later write requires its "
    f"revision. Long pages come in parts. {DATA_NOTE}",
    _format_page,
)
def read_page(wiki: WikiSession, params: ReadPageArguments, budget: int) -> ReadPageResult:
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(params.path), params.revision)
    lines = split_lines(page.content)
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
            outline=take_fitting(outline, share // 4, at_least=0),
            category=page.metadata.category,
            tags=page.metadata.tags,
            last_updated=page.metadata.last_updated,
            last_commit=shorten_fields(commit, COMMIT_TEXTS, share // 10)
            if commit and share >= _MIN_COMMIT_SHARE
            else None,
            warnings=[*page.warnings, *page.notes],
            notice=DATA_NOTICE,
            continuation=build_part_continuation(part, last, "read_page", arguments),
        )
        return shorten_fields(document, ("title", "category", "tags", "warnings"), share // 8)

    return fit_to_budget(build, _format_page, budget)


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
    same = (heading for heading in headings if text in (heading.text, heading.anchor))
    similar = (heading for heading in headings if text.casefold() == heading.text.casefold())
    heading = next(chain(same, similar), None)
    if heading is None:
        known = ", ".join(repr(heading.text) for heading in headings[:20])
        raise InvalidPage(
            f"the page has no section {section[:200]!r}",
            hint=f"its headings are: {known}" if known else "it has no headings; read it by lines",
        )
    ends = (other.line - 1 for other in headings if other.line > heading.line and other.level <= heading.level)
    return heading.line, next(ends, end)


def _build_no_line_error(line: int, lines: Sequence[str]) -> InvalidPage:
    return InvalidPage(f"the page has no line {line}", hint=f"it has {len(lines)} lines")


class FetchArguments(BudgetedArguments):
    id: str = Field(
        min_length=1,
        max_length=1100,
        pattern=TEXT_PATTERN,
        description="The id of a result: the page's path; PATH#L40 starts at line 40, PATH#L40-60 ends at line 60.",
    )


class FetchMetadata(TypedDict):
    """The metadata of a fetched page."""

    path: str
    lines: list[int]
    total_lines: int
    revision: str
    last_updated: str | None
    notice: str
    continuation: Continuation | None


class FetchResult(TypedDict):
    """A page by its id."""

    id: str
    title: str
    text: str
    url: str
    metadata: FetchMetadata


@tool(
    "Fetch a page by id",
    f"Get the text of a page by the id of a search result. Long pages come in parts. {DATA_NOTE}",
    format_compact_json,
)
def fetch(wiki: WikiSession, params: FetchArguments, budget: int) -> FetchResult:
    path, first, last = params.id, 1, None
    if match := _PAGE_ID_PATTERN.fullmatch(params.id):
        path, first, last = match[1], int(match[2]), int(match[3]) if match[3] else None
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(path))
    lines = split_lines(page.content)
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
    continuation = build_part_continuation(part, end, "read_page", {"path": path, **to_line, **budget})
    if continuation and part.next_position and not part.next_position[1]:
        line_range = f"#L{part.next_position[0]}" + (f"-{end}" if to_line else "")
        arguments = {"id": f"{path}{line_range}", **budget}
        return {"message": continuation["message"], "tool": "fetch", "arguments": arguments}
    return continuation


class ReadPagesArguments(BudgetedArguments):
    paths: ArgumentValues = Field(min_length=1, max_length=_MAX_PAGES_PER_READ, description="The paths of the pages.")


class PageText(TypedDict):
    """One of several pages, as far as it fits; or the error."""

    path: str
    title: str
    content: str
    lines: list[int]
    revision: str | None
    error: str | None
    continuation: Continuation | None


class ReadPagesResult(TypedDict):
    """Several pages in the order of the call."""

    pages: list[PageText]
    notice: str
    continuation: Continuation | None


def _format_pages(result: ReadPagesResult) -> str:
    lines = [result["notice"]]
    for page in result["pages"]:
        if page["error"] is not None:
            lines.append(f"{page['path']}: {page['error']}")
            continue
        lines.append(f"{page['title']} ({page['path']}), revision {page['revision']}")
        lines += [*quote_text(page["content"]), *format_continuation(page["continuation"])]
    return join_lines(lines, result["continuation"])


@tool(
    "Read several pages",
    f"Read up to 20 pages in one call; they share max_tokens. {DATA_NOTE}",
    _format_pages,
)
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

    return fit_to_budget(build, _format_pages, budget)


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
    lines = split_lines(page.content)
    part = cut_lines(lines, 1, len(lines), 0, share)
    display_path = wiki.path_style.to_display_path(page.path)
    text: PageText = {
        "path": display_path,
        "title": wiki.path_style.to_display_title(page.name, page.path),
        "content": part.text,
        "lines": [part.first, part.last],
        "revision": page.revision,
        "error": None,
        "continuation": build_part_continuation(part, len(lines), "read_page", {"path": display_path}),
    }
    return shorten_fields(text, ("title",), share // 8)
