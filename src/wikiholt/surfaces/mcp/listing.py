"""Lists: pages, links both ways, commits, pages that nobody links to. Each says how to get what did not fit."""

from collections.abc import Sequence
from typing import Any, TypeVar

from wikiholt.errors import NothingIndexed
from wikiholt.handle import WikiHandle
from wikiholt.model import PageFilter
from wikiholt.surfaces.documents.commits import build_changelog_document, build_commit_document
from wikiholt.surfaces.documents.links import build_links_document, build_orphans_document
from wikiholt.surfaces.documents.pages import build_page_list_document
from wikiholt.surfaces.http.visits import WikiSession
from wikiholt.surfaces.mcp.answers import (
    ListPagesResult,
    OrphansResult,
    HistoryResult,
    LinksResult,
    ChangesResult,
    Continuation,
)
from wikiholt.surfaces.mcp.arguments import ChangesArguments, HistoryArguments, LinksArguments, ListPagesArguments, OrphansArguments
from wikiholt.surfaces.mcp.budget import take_fitting, estimate_tokens

T = TypeVar("T")


def list_pages(wiki: WikiSession, params: ListPagesArguments, budget: int) -> ListPagesResult:
    with wiki.use_handle() as handle:
        found = handle.pages.list(wiki.to_git_filter(params.to_filter()), params.limit, params.offset)
        stale = _is_stale(handle)
    document = build_page_list_document(found, wiki.path_style)
    pages = _take_fitting_items(document["pages"], budget)
    return {
        "pages": pages,
        "total": document["total"],
        "offset": params.offset,
        "indexed_revision": document["indexed_revision"],
        "stale": stale,
        "rest": _build_list_continuation(
            "list_pages",
            params.model_dump(exclude_defaults=True),
            params.offset + len(pages),
            document["total"] - params.offset - len(pages),
            "pages",
        ),
    }


def find_orphans(wiki: WikiSession, params: OrphansArguments, budget: int) -> OrphansResult:
    with wiki.use_handle() as handle:
        document = build_orphans_document(handle.pages.find_orphans(), wiki.path_style)
        stale = _is_stale(handle)
    pages = _take_fitting_items(document["pages"][params.offset : params.offset + params.limit], budget)
    done = params.offset + len(pages)
    arguments = params.model_dump(exclude_defaults=True)
    return {
        "pages": pages,
        "total": document["total"],
        "offset": params.offset,
        "stale": stale,
        "rest": _build_list_continuation("find_orphans", arguments, done, document["total"] - done, "pages"),
    }


def get_links(wiki: WikiSession, params: LinksArguments, budget: int) -> LinksResult:
    with wiki.use_handle() as handle:
        document = build_links_document(handle.pages.get_links(wiki.path_style.to_git_path(params.path)), wiki.path_style)
        stale = _is_stale(handle)
    every = (document["links_to"], document["linked_from"], document["missing"])
    shown = [_take_fitting_items(each[params.offset : params.offset + params.limit], budget // 3) for each in every]
    # The same number of each, so that one offset goes on with all of them.
    step = min(
        (len(some) for some, each in zip(shown, every, strict=True) if params.offset + len(some) < len(each)), default=0
    )
    if step:
        shown = [some[:step] for some in shown]
    left = max(len(each) for each in every) - params.offset - max(map(len, shown))
    arguments = params.model_dump(exclude_defaults=True)
    return {
        "path": document["path"],
        "links_to": shown[0],
        "linked_from": shown[1],
        "missing": shown[2],
        "totals": {
            "links_to": len(every[0]),
            "linked_from": len(every[1]),
            "missing": len(every[2]),
        },
        "stale": stale,
        "rest": _build_list_continuation("get_links", arguments, params.offset + step, left if step else 0, "links"),
    }


def list_changes(wiki: WikiSession, params: ChangesArguments, budget: int) -> ChangesResult:
    found = wiki.handle.pages.read_changelog(params.limit + 1, params.offset)
    document = build_changelog_document(found[: params.limit], wiki.path_style)
    entries = _take_fitting_items(document["entries"], budget)
    left = len(found) - len(entries)
    arguments = params.model_dump(exclude_defaults=True)
    return {
        "entries": entries,
        "rest": _build_list_continuation("recent_changes", arguments, params.offset + len(entries), left, "commits", exact=False),
    }


def list_history(wiki: WikiSession, params: HistoryArguments, budget: int) -> HistoryResult:
    path = wiki.path_style.to_git_path(params.path)
    found = wiki.handle.pages.read_history(path, params.limit + 1)
    entries = _take_fitting_items([build_commit_document(commit) for commit in found[: params.limit]], budget)
    rest: Continuation | None = None
    if len(entries) < len(found):
        wider = {"limit": min(200, params.limit * 2), "max_tokens": min(50_000, budget * 2)}
        rest = {
            "told": "There are older commits.",
            "tool": "page_history",
            "arguments": {"path": params.path, **wider},
        }
    return {"path": wiki.path_style.to_display_path(path), "history": entries, "rest": rest}


def _is_stale(handle: WikiHandle) -> bool:
    """Whether the index has not reached HEAD; raises NothingIndexed where it holds no page yet: that is no answer."""
    known = handle.pages.list(PageFilter(), 1)
    if not known.total:
        raise NothingIndexed("no page of this wiki is indexed yet", hint="wait for its first sync")
    head = handle.get_version_token()[2]
    return head is not None and head != known.indexed_revision


def _take_fitting_items(items: Sequence[T], budget: int) -> list[T]:
    return take_fitting(items, lambda item: estimate_tokens(str(item)), budget)


def _build_list_continuation(
    tool: str, arguments: dict[str, Any], offset: int, remaining: int, noun: str, *, exact: bool = True
) -> Continuation | None:
    if remaining <= 0:
        return None
    told = f"{remaining} more {noun}." if exact else f"There are more {noun}."
    return {"told": told, "tool": tool, "arguments": {**arguments, "offset": offset}}
