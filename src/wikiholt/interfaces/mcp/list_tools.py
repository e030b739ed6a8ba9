"""The tools that list pages, links, commits, tags and files. Each result has the call that returns the rest."""

from collections.abc import Sequence
from typing import Any, TypeVar, cast

from wikiholt.domain.git import LogEntry
from wikiholt.domain.search import PageFilter
from wikiholt.errors import NothingIndexed
from wikiholt.interfaces.mcp.resources import format_attachment_uri
from wikiholt.interfaces.mcp.result_schemas import (
    AttachmentEntry,
    ChangesResult,
    Continuation,
    HistoryResult,
    LinksResult,
    ListAttachmentsResult,
    ListPagesResult,
    ListTagsResult,
    OrphansResult,
)
from wikiholt.interfaces.mcp.text_output import (
    COMMIT_TEXTS,
    estimate_json_tokens,
    fit_to_budget,
    format_attachments,
    format_changes,
    format_history,
    format_links,
    format_page_list,
    format_tags,
    shorten_fields,
    take_fitting,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    ChangesArguments,
    HistoryArguments,
    LinksArguments,
    ListAttachmentsArguments,
    ListPagesArguments,
    ListTagsArguments,
    PagedArguments,
    ToolArguments,
)
from wikiholt.interfaces.schemas.common import build_documents, parse_since
from wikiholt.interfaces.schemas.page_schemas import (
    CommitDocument,
    OrphansDocument,
    PageListDocument,
    build_changelog_document,
    build_facets_document,
    build_links_document,
    build_orphans_document,
    build_page_list_document,
)
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.pages.page_locator import is_below
from wikiholt.wikis.session import WikiSession

T = TypeVar("T")

_LOG_BATCH = 500
_MAX_SCANNED_COMMITS = 5000
"""Commits that one call of recent_changes reads to find those of a folder or since a date."""
_PAGE_TEXTS = ("name", "category", "tags")


def list_pages(wiki: WikiSession, params: ListPagesArguments, budget: int) -> ListPagesResult:
    with wiki.open_snapshot() as snapshot:
        page_list = snapshot.pages.list(wiki.to_git_filter(params.to_filter()), params.limit, params.offset)
        stale = _is_stale(snapshot)
    document = build_page_list_document(page_list, wiki.path_style)
    return cast(ListPagesResult, _fit_page_list("list_pages", document, params, budget, stale=stale))


def find_orphans(wiki: WikiSession, params: PagedArguments, budget: int) -> OrphansResult:
    with wiki.open_snapshot() as snapshot:
        document = build_orphans_document(snapshot.pages.find_orphans(), wiki.path_style)
        stale = _is_stale(snapshot)
    document["pages"] = document["pages"][params.offset : params.offset + params.limit]
    return cast(OrphansResult, _fit_page_list("find_orphans", document, params, budget, stale=stale))


def _fit_page_list(
    tool: str,
    document: PageListDocument | OrphansDocument,
    params: ListPagesArguments | PagedArguments,
    budget: int,
    *,
    stale: bool,
) -> Any:
    """The document with those of its pages that fit, and the call that lists the rest."""

    def build(share: int) -> Any:
        pages = _take_shortened(document["pages"], _PAGE_TEXTS, share)
        done = params.offset + len(pages)
        return {
            **document,
            "pages": pages,
            "offset": params.offset,
            "stale": stale,
            "continuation": _build_continuation(tool, params, done, document["total"] - done, "pages"),
        }

    return fit_to_budget(build, format_page_list, budget)


def get_links(wiki: WikiSession, params: LinksArguments, budget: int) -> LinksResult:
    with wiki.use_handle() as handle:
        page_links = handle.pages.get_links(wiki.path_style.to_git_path(params.path))
        with handle.open_snapshot() as snapshot:
            stale = _is_stale(snapshot)
    document = build_links_document(page_links, wiki.path_style)
    lists = (document["links_to"], document["linked_from"], document["missing"])

    def build(share: int) -> LinksResult:
        (links_to, linked_from, missing), continuation = _cut_lists(lists, share, "get_links", params)
        return {
            "path": document["path"],
            "links_to": links_to,
            "linked_from": linked_from,
            "missing": missing,
            "totals": {
                "links_to": len(document["links_to"]),
                "linked_from": len(document["linked_from"]),
                "missing": len(document["missing"]),
            },
            "stale": stale,
            "continuation": continuation,
        }

    return fit_to_budget(build, format_links, budget)


def list_tags(wiki: WikiSession, params: ListTagsArguments, budget: int) -> ListTagsResult:
    with wiki.open_snapshot() as snapshot:
        document = build_facets_document(snapshot.pages.get_facets(wiki.to_git_filter(params.to_filter())))
    lists = [
        [(facet["value"], facet["count"]) for facet in facets]
        for facets in (document["tags"], document["categories"], document["folders"])
    ]

    def build(share: int) -> ListTagsResult:
        (tags, categories, folders), continuation = _cut_lists(lists, share, "list_tags", params)
        return {
            "pages": document["pages"],
            "tags": dict(tags),
            "categories": dict(categories),
            "folders": dict(folders),
            "continuation": continuation,
        }

    return fit_to_budget(build, format_tags, budget)


def list_attachments(wiki: WikiSession, params: ListAttachmentsArguments, budget: int) -> ListAttachmentsResult:
    found = wiki.handle.pages.list_attachments(wiki.path_style.to_git_path(params.path))
    path = wiki.path_style.to_display_path(found.path)
    entries: list[AttachmentEntry] = [
        {
            "filename": file.filename,
            "size": file.size,
            "mime_type": file.mime_type,
            "uri": format_attachment_uri(path, file.filename),
        }
        for file in found.files
    ]

    def build(share: int) -> ListAttachmentsResult:
        (shown,), continuation = _cut_lists([entries], share, "list_attachments", params)
        return {"attachments": shown, "total": len(entries), "continuation": continuation}

    return fit_to_budget(build, format_attachments, budget)


def _cut_lists(
    lists: Sequence[list[T]],
    share: int,
    tool: str,
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
    return shown, _build_continuation(tool, params, start + step, remaining if step else 0, "entries")


def list_changes(wiki: WikiSession, params: ChangesArguments, budget: int) -> ChangesResult:
    found, position, is_end = _find_changes(wiki, params)
    changes = build_changelog_document([entry for _, entry in found], wiki.path_style)["entries"]

    def build(share: int) -> ChangesResult:
        entries = _take_shortened(changes, (*COMMIT_TEXTS, "pages_affected"), share)
        is_cut = len(entries) < len(found)
        done = found[len(entries)][0] if is_cut else position
        return {
            "entries": entries,
            "continuation": _build_continuation(
                "recent_changes", params, done, int(is_cut or not is_end), "commits", exact=False
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
    history = build_documents(CommitDocument, commits[: params.limit])

    def build(share: int) -> HistoryResult:
        entries = _take_shortened(history, COMMIT_TEXTS, share)
        done, remaining = params.offset + len(entries), len(commits) - len(entries)
        return {
            "path": wiki.path_style.to_display_path(path),
            "history": entries,
            "continuation": _build_continuation("page_history", params, done, remaining, "commits", exact=False),
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


def _build_continuation(
    tool: str, params: ToolArguments, offset: int, remaining: int, noun: str, *, exact: bool = True
) -> Continuation | None:
    if remaining <= 0:
        return None
    text = f"{remaining} more {noun}." if exact else f"There are more {noun}."
    return {"message": text, "tool": tool, "arguments": {**params.model_dump(exclude_defaults=True), "offset": offset}}
