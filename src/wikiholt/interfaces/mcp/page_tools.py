"""The tools that read and list pages, links and history, with results cut to the token budget."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from wikiholt.domain.page import Heading, PageContent
from wikiholt.domain.search import PageFilter
from wikiholt.errors import InvalidPage, NothingIndexed
from wikiholt.interfaces.mcp.text_output import TextPart, cut_lines, estimate_tokens, take_fitting
from wikiholt.interfaces.mcp.tool_schemas import (
    DATA_NOTICE,
    ChangesArguments,
    ChangesResult,
    Continuation,
    FetchArguments,
    FetchResult,
    HistoryArguments,
    HistoryResult,
    LinksArguments,
    LinksResult,
    ListPagesArguments,
    ListPagesResult,
    OrphansArguments,
    OrphansResult,
    OutlineEntry,
    ReadPageArguments,
    ReadPageResult,
)
from wikiholt.interfaces.schemas.common import build_document, build_documents, format_date
from wikiholt.interfaces.schemas.page_schemas import (
    build_changelog_document,
    build_commit_document,
    build_links_document,
    build_orphans_document,
    build_page_list_document,
)
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.session import WikiSession

T = TypeVar("T")

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
    return build_document(
        ReadPageResult,
        page,
        wiki.path_style,
        title=wiki.path_style.to_display_title(page.name, page.path),
        content=part.text,
        lines=[part.first, part.last],
        total_lines=len(lines),
        outline=build_documents(OutlineEntry, page.headings[:_MAX_HEADINGS]),
        category=page.metadata.category,
        tags=page.metadata.tags,
        last_updated=page.metadata.last_updated,
        last_commit=build_commit_document(page.last_commit) if page.last_commit else None,
        warnings=[*page.warnings, *page.notes],
        notice=DATA_NOTICE,
        continuation=_build_page_continuation(part, last, "read_page", arguments),
    )


def fetch_page(wiki: WikiSession, params: FetchArguments, budget: int) -> FetchResult:
    path, first, last = params.id, 1, None
    if match := _PAGE_ID_PATTERN.fullmatch(params.id):
        path, first, last = match[1], int(match[2]), int(match[3]) if match[3] else None
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(path))
    lines = page.content.split("\n")
    if first > len(lines):
        raise _build_no_line_error(first, lines)
    end = min(last or len(lines), len(lines))
    part = cut_lines(lines, first, max(first, end), 0, budget)
    display_path = wiki.path_style.to_display_path(page.path)
    continuation = _build_page_continuation(
        part, end, "read_page", {"path": display_path} | ({"to_line": end} if end < len(lines) else {})
    )
    if continuation and part.next_position and not part.next_position[1]:
        line_range = f"#L{part.next_position[0]}" + (f"-{end}" if end < len(lines) else "")
        continuation = {
            "message": continuation["message"],
            "tool": "fetch",
            "arguments": {"id": f"{display_path}{line_range}"},
        }
    return {
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
            "continuation": continuation,
        },
    }


def _resolve_line_range(page: PageContent, lines: Sequence[str], params: ReadPageArguments) -> tuple[int, int]:
    """The requested range of lines. Raises InvalidPage if the page does not have it."""
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
        raise InvalidPage(f"the range of lines {first} to {last} is empty", hint="to_line must be at least from_line")
    return first, last


def _find_section(headings: Sequence[Heading], section: str, end: int) -> tuple[int, int]:
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


def _build_page_continuation(part: TextPart, last: int, tool: str, arguments: dict[str, Any]) -> Continuation | None:
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


# Lists of pages, links and commits. Each result has the call that returns the rest.


def list_pages(wiki: WikiSession, params: ListPagesArguments, budget: int) -> ListPagesResult:
    with wiki.open_snapshot() as snapshot:
        page_list = snapshot.pages.list(wiki.to_git_filter(params.to_filter()), params.limit, params.offset)
        stale = _is_stale(snapshot)
    document = build_page_list_document(page_list, wiki.path_style)
    pages = _take_fitting_items(document["pages"], budget)
    done = params.offset + len(pages)
    arguments = params.model_dump(exclude_defaults=True)
    return {
        **document,
        "pages": pages,
        "offset": params.offset,
        "stale": stale,
        "continuation": _build_list_continuation("list_pages", arguments, done, document["total"] - done, "pages"),
    }


def find_orphans(wiki: WikiSession, params: OrphansArguments, budget: int) -> OrphansResult:
    with wiki.open_snapshot() as snapshot:
        document = build_orphans_document(snapshot.pages.find_orphans(), wiki.path_style)
        stale = _is_stale(snapshot)
    pages = _take_fitting_items(document["pages"][params.offset : params.offset + params.limit], budget)
    done = params.offset + len(pages)
    arguments = params.model_dump(exclude_defaults=True)
    return {
        **document,
        "pages": pages,
        "offset": params.offset,
        "stale": stale,
        "continuation": _build_list_continuation("find_orphans", arguments, done, document["total"] - done, "pages"),
    }


def get_links(wiki: WikiSession, params: LinksArguments, budget: int) -> LinksResult:
    with wiki.use_handle() as handle:
        page_links = handle.pages.get_links(wiki.path_style.to_git_path(params.path))
        with handle.open_snapshot() as snapshot:
            stale = _is_stale(snapshot)
    document = build_links_document(page_links, wiki.path_style)
    all_lists = (document["links_to"], document["linked_from"], document["missing"])
    start, end = params.offset, params.offset + params.limit
    shown = [_take_fitting_items(links[start:end], budget // 3) for links in all_lists]
    # The same number of each, so that one offset continues all of them.
    cut_lists = (part for part, links in zip(shown, all_lists, strict=True) if start + len(part) < len(links))
    step = min(map(len, cut_lists), default=0)
    if step:
        shown = [part[:step] for part in shown]
    remaining = max(map(len, all_lists)) - start - max(map(len, shown))
    arguments = params.model_dump(exclude_defaults=True)
    return {
        "path": document["path"],
        "links_to": shown[0],
        "linked_from": shown[1],
        "missing": shown[2],
        "totals": {
            "links_to": len(all_lists[0]),
            "linked_from": len(all_lists[1]),
            "missing": len(all_lists[2]),
        },
        "stale": stale,
        "continuation": _build_list_continuation(
            "get_links", arguments, start + step, remaining if step else 0, "links"
        ),
    }


def list_changes(wiki: WikiSession, params: ChangesArguments, budget: int) -> ChangesResult:
    commits = wiki.handle.pages.read_changelog(params.limit + 1, params.offset)
    document = build_changelog_document(commits[: params.limit], wiki.path_style)
    entries = _take_fitting_items(document["entries"], budget)
    remaining = len(commits) - len(entries)
    arguments = params.model_dump(exclude_defaults=True)
    return {
        "entries": entries,
        "continuation": _build_list_continuation(
            "recent_changes", arguments, params.offset + len(entries), remaining, "commits", exact=False
        ),
    }


def list_history(wiki: WikiSession, params: HistoryArguments, budget: int) -> HistoryResult:
    path = wiki.path_style.to_git_path(params.path)
    commits = wiki.handle.pages.read_history(path, params.limit + 1)
    entries = _take_fitting_items([build_commit_document(commit) for commit in commits[: params.limit]], budget)
    continuation: Continuation | None = None
    if len(entries) < len(commits):
        wider = {"limit": min(200, params.limit * 2), "max_tokens": min(50_000, budget * 2)}
        continuation = {
            "message": "There are older commits.",
            "tool": "page_history",
            "arguments": {"path": params.path, **wider},
        }
    return {"path": wiki.path_style.to_display_path(path), "history": entries, "continuation": continuation}


def _is_stale(snapshot: IndexSnapshot) -> bool:
    """Whether the index is behind HEAD. Raises NothingIndexed if it has no page yet."""
    indexed = snapshot.pages.list(PageFilter(), 1)
    if not indexed.total:
        raise NothingIndexed("no page of this wiki is indexed yet", hint="wait for its first sync")
    return snapshot.version.head not in (None, indexed.indexed_revision)


def _take_fitting_items(items: Sequence[T], budget: int) -> list[T]:
    return take_fitting(items, lambda item: estimate_tokens(str(item)), budget)


def _build_list_continuation(
    tool: str, arguments: dict[str, Any], offset: int, remaining: int, noun: str, *, exact: bool = True
) -> Continuation | None:
    if remaining <= 0:
        return None
    text = f"{remaining} more {noun}." if exact else f"There are more {noun}."
    return {"message": text, "tool": tool, "arguments": {**arguments, "offset": offset}}
