"""Pages read whole, by section, by lines, at a revision; long ones in parts."""

import re
from collections.abc import Sequence
from typing import Any

from wikiholt.errors import InvalidPage
from wikiholt.model import Heading, PageContent
from wikiholt.surfaces.documents.commits import build_commit_document
from wikiholt.surfaces.documents.moments import format_date
from wikiholt.surfaces.http.visits import WikiSession
from wikiholt.surfaces.mcp.answers import DATA_NOTICE, FetchResult, OutlineEntry, ReadPageResult, Continuation
from wikiholt.surfaces.mcp.arguments import FetchArguments, ReadPageArguments
from wikiholt.surfaces.mcp.budget import TextPart, cut_lines

_MAX_HEADINGS = 60
_PAGE_ID_PATTERN = re.compile(r"(?s)(.+)#L([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")


def read_page(wiki: WikiSession, params: ReadPageArguments, budget: int) -> ReadPageResult:
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(params.path), params.revision)
    lines = page.content.split("\n")
    first, last = _resolve_line_range(page, lines, params)
    part = cut_lines(lines, first, last, params.from_character, budget)
    path = wiki.path_style.to_display_path(page.path)
    arguments: dict[str, Any] = {"path": path}
    if params.revision:
        arguments["revision"] = params.revision
    if last < len(lines):
        arguments["to_line"] = last
    return {
        "path": path,
        "title": wiki.path_style.to_display_title(page.name, page.path),
        "content": part.text,
        "lines": [part.first, part.last],
        "total_lines": len(lines),
        "outline": _build_outline(page.headings),
        "category": page.metadata.category,
        "tags": list(page.metadata.tags),
        "last_updated": format_date(page.metadata.last_updated),
        "revision": page.revision,
        "read_at": page.read_at,
        "last_commit": build_commit_document(page.last_commit) if page.last_commit else None,
        "warnings": [*page.warnings, *page.notes],
        "notice": DATA_NOTICE,
        "rest": _build_page_continuation(part, last, "read_page", arguments),
    }


def fetch_page(wiki: WikiSession, params: FetchArguments, budget: int) -> FetchResult:
    path, first, last = params.id, 1, None
    if found := _PAGE_ID_PATTERN.fullmatch(params.id):
        path, first, last = found[1], int(found[2]), int(found[3]) if found[3] else None
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(path))
    lines = page.content.split("\n")
    if first > len(lines):
        raise _build_no_line_error(first, lines)
    end = min(last or len(lines), len(lines))
    part = cut_lines(lines, first, max(first, end), 0, budget)
    shown = wiki.path_style.to_display_path(page.path)
    rest = _build_page_continuation(part, end, "read_page", {"path": shown} | ({"to_line": end} if end < len(lines) else {}))
    if rest and part.rest and not part.rest[1]:
        told = f"#L{part.rest[0]}" + (f"-{end}" if end < len(lines) else "")
        rest = {"told": rest["told"], "tool": "fetch", "arguments": {"id": f"{shown}{told}"}}
    return {
        "id": params.id,
        "title": wiki.path_style.to_display_title(page.name, page.path),
        "text": part.text,
        "url": wiki.handle.build_link(page.path),
        "metadata": {
            "path": shown,
            "lines": [part.first, part.last],
            "total_lines": len(lines),
            "revision": page.revision,
            "last_updated": format_date(page.metadata.last_updated),
            "notice": DATA_NOTICE,
            "rest": rest,
        },
    }


def _resolve_line_range(page: PageContent, lines: Sequence[str], params: ReadPageArguments) -> tuple[int, int]:
    """The lines that are asked for; raises InvalidPage for what the page does not have."""
    first, last = 1, len(lines)
    if params.section:
        first, last = _find_section(page.headings, params.section, last)
    if params.from_line is not None:
        first = max(first, params.from_line)
    if params.to_line is not None:
        last = min(last, params.to_line)
    if first > len(lines):
        raise _build_no_line_error(first, lines)
    if first > last:
        raise InvalidPage(f"lines {first} to {last} are none", hint="let to_line be at least from_line")
    return first, last


def _find_section(headings: Sequence[Heading], section: str, end: int) -> tuple[int, int]:
    """The lines of a section with those below it: up to the next heading of its level or above."""
    meant = section.strip().lstrip("#").strip()
    for same in (_is_same_heading, _is_matching_heading):
        for number, heading in enumerate(headings):
            if same(heading, meant):
                after = (each.line - 1 for each in headings[number + 1 :] if each.level <= heading.level)
                return heading.line, next(after, end)
    known = ", ".join(repr(heading.text) for heading in headings[:20])
    raise InvalidPage(
        f"the page has no section {section[:200]!r}",
        hint=f"its headings are: {known}" if known else "it has no headings; read it by lines",
    )


def _is_same_heading(heading: Heading, text: str) -> bool:
    return text in (heading.text, heading.anchor)


def _is_matching_heading(heading: Heading, text: str) -> bool:
    return text.casefold() == heading.text.casefold()


def _build_outline(headings: Sequence[Heading]) -> list[OutlineEntry]:
    return [
        {"level": each.level, "text": each.text, "anchor": each.anchor, "line": each.line}
        for each in headings[:_MAX_HEADINGS]
    ]


def _build_page_continuation(part: TextPart, last: int, tool: str, arguments: dict[str, Any]) -> Continuation | None:
    if part.rest is None:
        return None
    line, character = part.rest
    begin = {"from_line": line} | ({"from_character": character} if character else {})
    return {
        "told": f"The answer ends before line {line} of {last}" + (f", character {character}." if character else "."),
        "tool": tool,
        "arguments": {**arguments, **begin},
    }


def _build_no_line_error(line: int, lines: Sequence[str]) -> InvalidPage:
    return InvalidPage(f"the page has no line {line}", hint=f"it has {len(lines)} lines")
