"""Pages read whole, by section, by lines, at a revision; long ones in parts."""

import re
from collections.abc import Sequence
from typing import Any

from wikiholt.errors import InvalidPage
from wikiholt.model import Heading, PageContent
from wikiholt.surfaces.documents.commits import commit_document
from wikiholt.surfaces.documents.moments import moment
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.mcp.answers import NOTICE, Fetched, OutlineEntry, PagePart, Rest
from wikiholt.surfaces.mcp.arguments import Fetch, ReadPage
from wikiholt.surfaces.mcp.budget import Part, part_of

_MOST_HEADINGS = 60
_ID = re.compile(r"(?s)(.+)#L([1-9][0-9]{0,8})(?:-L?([1-9][0-9]{0,8}))?")


def read_page(wiki: OpenWiki, asked: ReadPage, budget: int) -> PagePart:
    page = wiki.handle.contents.read(wiki.names.meant(asked.path), asked.revision)
    lines = page.content.split("\n")
    first, last = _wanted(page, lines, asked)
    part = part_of(lines, first, last, asked.from_character, budget)
    path = wiki.names.shown(page.path)
    arguments: dict[str, Any] = {"path": path}
    if asked.revision:
        arguments["revision"] = asked.revision
    if last < len(lines):
        arguments["to_line"] = last
    return {
        "path": path,
        "title": wiki.names.titled(page.name, page.path),
        "content": part.text,
        "lines": [part.first, part.last],
        "total_lines": len(lines),
        "outline": _outline(page.headings),
        "category": page.metadata.category,
        "tags": list(page.metadata.tags),
        "last_updated": moment(page.metadata.last_updated),
        "revision": page.revision,
        "read_at": page.read_at,
        "last_commit": commit_document(page.last_commit) if page.last_commit else None,
        "warnings": [*page.warnings, *page.notes],
        "notice": NOTICE,
        "rest": _rest(part, last, "read_page", arguments),
    }


def fetch(wiki: OpenWiki, asked: Fetch, budget: int) -> Fetched:
    path, first, last = asked.id, 1, None
    if found := _ID.fullmatch(asked.id):
        path, first, last = found[1], int(found[2]), int(found[3]) if found[3] else None
    page = wiki.handle.contents.read(wiki.names.meant(path))
    lines = page.content.split("\n")
    if first > len(lines):
        raise _no_line(first, lines)
    end = min(last or len(lines), len(lines))
    part = part_of(lines, first, max(first, end), 0, budget)
    shown = wiki.names.shown(page.path)
    rest = _rest(part, end, "read_page", {"path": shown} | ({"to_line": end} if end < len(lines) else {}))
    if rest and part.rest and not part.rest[1]:
        told = f"#L{part.rest[0]}" + (f"-{end}" if end < len(lines) else "")
        rest = {"told": rest["told"], "tool": "fetch", "arguments": {"id": f"{shown}{told}"}}
    return {
        "id": asked.id,
        "title": wiki.names.titled(page.name, page.path),
        "text": part.text,
        "url": wiki.handle.link(page.path),
        "metadata": {
            "path": shown,
            "lines": [part.first, part.last],
            "total_lines": len(lines),
            "revision": page.revision,
            "last_updated": moment(page.metadata.last_updated),
            "notice": NOTICE,
            "rest": rest,
        },
    }


def _wanted(page: PageContent, lines: Sequence[str], asked: ReadPage) -> tuple[int, int]:
    """The lines that are asked for; raises InvalidPage for what the page does not have."""
    first, last = 1, len(lines)
    if asked.section:
        first, last = _section(page.headings, asked.section, last)
    if asked.from_line is not None:
        first = max(first, asked.from_line)
    if asked.to_line is not None:
        last = min(last, asked.to_line)
    if first > len(lines):
        raise _no_line(first, lines)
    if first > last:
        raise InvalidPage(f"lines {first} to {last} are none", hint="let to_line be at least from_line")
    return first, last


def _section(headings: Sequence[Heading], wanted: str, end: int) -> tuple[int, int]:
    """The lines of a section with those below it: up to the next heading of its level or above."""
    meant = wanted.strip().lstrip("#").strip()
    for same in (_is_exactly, _is_about):
        for number, heading in enumerate(headings):
            if same(heading, meant):
                after = (each.line - 1 for each in headings[number + 1 :] if each.level <= heading.level)
                return heading.line, next(after, end)
    known = ", ".join(repr(heading.text) for heading in headings[:20])
    raise InvalidPage(
        f"the page has no section {wanted[:200]!r}",
        hint=f"its headings are: {known}" if known else "it has no headings; read it by lines",
    )


def _is_exactly(heading: Heading, meant: str) -> bool:
    return meant in (heading.text, heading.anchor)


def _is_about(heading: Heading, meant: str) -> bool:
    return meant.casefold() == heading.text.casefold()


def _outline(headings: Sequence[Heading]) -> list[OutlineEntry]:
    return [
        {"level": each.level, "text": each.text, "anchor": each.anchor, "line": each.line}
        for each in headings[:_MOST_HEADINGS]
    ]


def _rest(part: Part, last: int, tool: str, arguments: dict[str, Any]) -> Rest | None:
    if part.rest is None:
        return None
    line, character = part.rest
    begin = {"from_line": line} | ({"from_character": character} if character else {})
    return {
        "told": f"The answer ends before line {line} of {last}" + (f", character {character}." if character else "."),
        "tool": tool,
        "arguments": {**arguments, **begin},
    }


def _no_line(line: int, lines: Sequence[str]) -> InvalidPage:
    return InvalidPage(f"the page has no line {line}", hint=f"it has {len(lines)} lines")
