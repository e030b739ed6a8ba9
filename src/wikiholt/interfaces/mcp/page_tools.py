"""The tools that read and list pages, links and history, with results cut to the token budget."""

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from wikiholt.domain.git import LogEntry
from wikiholt.domain.page import Heading, PageContent
from wikiholt.domain.search import PageFilter
from wikiholt.errors import InvalidPage, NothingIndexed
from wikiholt.interfaces.mcp.result_schemas import (
    DATA_NOTICE,
    ChangesResult,
    Continuation,
    FetchResult,
    HistoryResult,
    LinksResult,
    ListPagesResult,
    OrphansResult,
    OutlineEntry,
    ReadPageResult,
)
from wikiholt.interfaces.mcp.text_output import (
    TextPart,
    cut_lines,
    estimate_json_tokens,
    fit_to_budget,
    format_changes,
    format_fetch_result,
    format_history,
    format_links,
    format_page,
    format_page_list,
    shorten_fields,
    take_fitting,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    ChangesArguments,
    FetchArguments,
    HistoryArguments,
    LinksArguments,
    ListAttachmentsArguments,
    ListPagesArguments,
    OrphansArguments,
    PagedArguments,
    ReadPageArguments,
)
from wikiholt.interfaces.schemas.common import build_document, build_documents, format_date, parse_since
from wikiholt.interfaces.schemas.page_schemas import (
    LinksDocument,
    build_changelog_document,
    build_commit_document,
    build_links_document,
    build_orphans_document,
    build_page_list_document,
)
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.pages.page_locator import is_below
from wikiholt.wikis.session import WikiSession

T = TypeVar("T")

_MAX_HEADINGS = 60
_LOG_BATCH = 500
_MAX_SCANNED_COMMITS = 5000
"""Commits that one call of recent_changes reads to find those of a folder or since a date."""
_MIN_COMMIT_SHARE = 150
"""Tokens of content below which read_page leaves out the last commit."""
_COMMIT_TEXTS = ("author", "email", "message")
_PAGE_TEXTS = ("name", "category", "tags")
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
    commit = build_commit_document(page.last_commit) if page.last_commit else None
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
            last_commit=shorten_fields(commit, _COMMIT_TEXTS, share // 10)
            if commit and share >= _MIN_COMMIT_SHARE
            else None,
            warnings=[*page.warnings, *page.notes],
            notice=DATA_NOTICE,
            continuation=build_page_continuation(part, last, "read_page", arguments),
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

    return fit_to_budget(build, format_fetch_result, budget)


def _build_fetch_continuation(
    part: TextPart, end: int, path: str, total_lines: int, max_tokens: int | None
) -> Continuation | None:
    """The call of fetch with the next line, or of read_page within a line."""
    budget = {"max_tokens": max_tokens} if max_tokens else {}
    to_line = {"to_line": end} if end < total_lines else {}
    continuation = build_page_continuation(part, end, "read_page", {"path": path, **to_line, **budget})
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


def build_page_continuation(part: TextPart, last: int, tool: str, arguments: dict[str, Any]) -> Continuation | None:
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
    arguments = params.model_dump(exclude_defaults=True)

    def build(share: int) -> ListPagesResult:
        pages = _take_shortened(document["pages"], _PAGE_TEXTS, share)
        done = params.offset + len(pages)
        return {
            **document,
            "pages": pages,
            "offset": params.offset,
            "stale": stale,
            "continuation": _build_list_continuation("list_pages", arguments, done, document["total"] - done, "pages"),
        }

    return fit_to_budget(build, format_page_list, budget)


def find_orphans(wiki: WikiSession, params: OrphansArguments, budget: int) -> OrphansResult:
    with wiki.open_snapshot() as snapshot:
        document = build_orphans_document(snapshot.pages.find_orphans(), wiki.path_style)
        stale = _is_stale(snapshot)
    listed = document["pages"][params.offset : params.offset + params.limit]
    arguments = params.model_dump(exclude_defaults=True)

    def build(share: int) -> OrphansResult:
        pages = _take_shortened(listed, _PAGE_TEXTS, share)
        done = params.offset + len(pages)
        remaining = document["total"] - done
        return {
            **document,
            "pages": pages,
            "offset": params.offset,
            "stale": stale,
            "continuation": _build_list_continuation("find_orphans", arguments, done, remaining, "pages"),
        }

    return fit_to_budget(build, format_page_list, budget)


def get_links(wiki: WikiSession, params: LinksArguments, budget: int) -> LinksResult:
    with wiki.use_handle() as handle:
        page_links = handle.pages.get_links(wiki.path_style.to_git_path(params.path))
        with handle.open_snapshot() as snapshot:
            stale = _is_stale(snapshot)
    document = build_links_document(page_links, wiki.path_style)
    return fit_to_budget(lambda share: _build_links_result(document, params, share, stale=stale), format_links, budget)


def _build_links_result(document: LinksDocument, params: LinksArguments, share: int, *, stale: bool) -> LinksResult:
    all_lists = (document["links_to"], document["linked_from"], document["missing"])
    arguments = params.model_dump(exclude_defaults=True)
    (links_to, linked_from, missing), continuation = cut_lists(all_lists, share, "get_links", arguments, params)
    return {
        "path": document["path"],
        "links_to": links_to,
        "linked_from": linked_from,
        "missing": missing,
        "totals": {
            "links_to": len(all_lists[0]),
            "linked_from": len(all_lists[1]),
            "missing": len(all_lists[2]),
        },
        "stale": stale,
        "continuation": continuation,
    }


def cut_lists(
    lists: Sequence[list[T]],
    share: int,
    tool: str,
    arguments: dict[str, Any],
    params: PagedArguments | ListAttachmentsArguments,
) -> tuple[list[list[T]], Continuation | None]:
    """The same number of entries of each list, so that one offset continues all of them."""
    start, end = params.offset, params.offset + params.limit
    shown = [take_fitting(items[start:end], estimate_json_tokens, share // len(lists)) for items in lists]
    cut = (part for part, items in zip(shown, lists, strict=True) if start + len(part) < len(items))
    step = min(map(len, cut), default=0)
    if step:
        shown = [part[:step] for part in shown]
    remaining = max(map(len, lists)) - start - max(map(len, shown))
    return shown, _build_list_continuation(tool, arguments, start + step, remaining if step else 0, "entries")


def list_changes(wiki: WikiSession, params: ChangesArguments, budget: int) -> ChangesResult:
    found, position, is_end = _find_changes(wiki, params)
    changes = build_changelog_document([entry for _, entry in found], wiki.path_style)["entries"]
    arguments = params.model_dump(exclude_defaults=True)

    def build(share: int) -> ChangesResult:
        entries = _take_shortened(changes, (*_COMMIT_TEXTS, "pages_affected"), share)
        is_cut = len(entries) < len(found)
        done = found[len(entries)][0] if is_cut else position
        return {
            "entries": entries,
            "continuation": _build_list_continuation(
                "recent_changes", arguments, done, int(is_cut or not is_end), "commits", exact=False
            ),
        }

    return fit_to_budget(build, format_changes, budget)


def _find_changes(wiki: WikiSession, params: ChangesArguments) -> tuple[list[tuple[int, LogEntry]], int, bool]:
    """The commits that match with their positions in the log, the position to go on from, and whether it is the end."""
    prefix = wiki.path_style.to_git_prefix(params.prefix).strip("/")
    since = parse_since(params.since) if params.since else None
    found: list[tuple[int, LogEntry]] = []
    position = params.offset
    batch = params.limit + 1 if since is None and not prefix else _LOG_BATCH
    while position < params.offset + _MAX_SCANNED_COMMITS:
        entries = wiki.handle.pages.read_changelog(batch, position)
        for entry in entries:
            matches = not prefix or any(is_below(get_page_path(file), prefix) for file in entry.files)
            if matches and (since is None or entry.commit.date >= since):
                if len(found) == params.limit:
                    return found, position, False
                found.append((position, entry))
            position += 1
        if len(entries) < batch:
            return found, position, True
    return found, position, False


def list_history(wiki: WikiSession, params: HistoryArguments, budget: int) -> HistoryResult:
    path = wiki.path_style.to_git_path(params.path)
    commits = wiki.handle.pages.read_history(path, params.offset + params.limit + 1)[params.offset :]
    history = [build_commit_document(commit) for commit in commits[: params.limit]]
    arguments = params.model_dump(exclude_defaults=True)

    def build(share: int) -> HistoryResult:
        entries = _take_shortened(history, _COMMIT_TEXTS, share)
        done, remaining = params.offset + len(entries), len(commits) - len(entries)
        return {
            "path": wiki.path_style.to_display_path(path),
            "history": entries,
            "continuation": _build_list_continuation(
                "page_history", arguments, done, remaining, "commits", exact=False
            ),
        }

    return fit_to_budget(build, format_history, budget)


def _is_stale(snapshot: IndexSnapshot) -> bool:
    """Whether the index is behind HEAD. Raises NothingIndexed if it has no page yet."""
    indexed = snapshot.pages.list(PageFilter(), 1)
    if not indexed.total:
        raise NothingIndexed("no page of this wiki is indexed yet", hint="wait for its first sync")
    return snapshot.version.head not in (None, indexed.indexed_revision)


def _take_shortened(items: Sequence[T], names: Sequence[str], share: int) -> list[T]:
    """The first items that fit, at least one, whose named fields are shortened to a part of the share."""
    shortened = (shorten_fields(item, names, share // (2 * len(names))) for item in items)
    return take_fitting(shortened, estimate_json_tokens, share)


def _build_list_continuation(
    tool: str, arguments: dict[str, Any], offset: int, remaining: int, noun: str, *, exact: bool = True
) -> Continuation | None:
    if remaining <= 0:
        return None
    text = f"{remaining} more {noun}." if exact else f"There are more {noun}."
    return {"message": text, "tool": tool, "arguments": {**arguments, "offset": offset}}
