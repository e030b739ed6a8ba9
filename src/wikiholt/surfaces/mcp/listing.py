"""Lists: pages, links both ways, commits, pages that nobody links to. Each says how to get what did not fit."""

from collections.abc import Sequence
from typing import Any, TypeVar

from wikiholt.errors import NothingIndexed
from wikiholt.handle import WikiHandle
from wikiholt.model import Filter
from wikiholt.surfaces.documents.commits import changelog_document, commit_document
from wikiholt.surfaces.documents.links import links_document, orphans_document
from wikiholt.surfaces.documents.pages import list_document
from wikiholt.surfaces.http.visits import OpenWiki
from wikiholt.surfaces.mcp.answers import (
    ListedPages,
    OrphanedPages,
    PageHistory,
    PageLinksBothWays,
    RecentChanges,
    Rest,
)
from wikiholt.surfaces.mcp.arguments import Changes, History, Links, Listed, Orphans
from wikiholt.surfaces.mcp.budget import fitting, tokens

T = TypeVar("T")


def list_pages(wiki: OpenWiki, asked: Listed, budget: int) -> ListedPages:
    with wiki.answering() as handle:
        found = handle.contents.list(wiki.narrowed(asked.filter()), asked.limit, asked.offset)
        stale = _stale(handle)
    document = list_document(found, wiki.names)
    pages = _fitting(document["pages"], budget)
    return {
        "pages": pages,
        "total": document["total"],
        "offset": asked.offset,
        "indexed_revision": document["indexed_revision"],
        "stale": stale,
        "rest": _more(
            "list_pages",
            asked.model_dump(exclude_defaults=True),
            asked.offset + len(pages),
            document["total"] - asked.offset - len(pages),
            "pages",
        ),
    }


def find_orphans(wiki: OpenWiki, asked: Orphans, budget: int) -> OrphanedPages:
    with wiki.answering() as handle:
        document = orphans_document(handle.contents.orphans(), wiki.names)
        stale = _stale(handle)
    pages = _fitting(document["pages"][asked.offset : asked.offset + asked.limit], budget)
    done = asked.offset + len(pages)
    arguments = asked.model_dump(exclude_defaults=True)
    return {
        "pages": pages,
        "total": document["total"],
        "offset": asked.offset,
        "stale": stale,
        "rest": _more("find_orphans", arguments, done, document["total"] - done, "pages"),
    }


def get_links(wiki: OpenWiki, asked: Links, budget: int) -> PageLinksBothWays:
    with wiki.answering() as handle:
        document = links_document(handle.contents.links(wiki.names.meant(asked.path)), wiki.names)
        stale = _stale(handle)
    every = (document["links_to"], document["linked_from"], document["missing"])
    shown = [_fitting(each[asked.offset : asked.offset + asked.limit], budget // 3) for each in every]
    # The same number of each, so that one offset goes on with all of them.
    step = min(
        (len(some) for some, each in zip(shown, every, strict=True) if asked.offset + len(some) < len(each)), default=0
    )
    if step:
        shown = [some[:step] for some in shown]
    left = max(len(each) for each in every) - asked.offset - max(map(len, shown))
    arguments = asked.model_dump(exclude_defaults=True)
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
        "rest": _more("get_links", arguments, asked.offset + step, left if step else 0, "links"),
    }


def recent_changes(wiki: OpenWiki, asked: Changes, budget: int) -> RecentChanges:
    found = wiki.handle.contents.changelog(asked.limit + 1, asked.offset)
    document = changelog_document(found[: asked.limit], wiki.names)
    entries = _fitting(document["entries"], budget)
    left = len(found) - len(entries)
    arguments = asked.model_dump(exclude_defaults=True)
    return {
        "entries": entries,
        "rest": _more("recent_changes", arguments, asked.offset + len(entries), left, "commits", exact=False),
    }


def page_history(wiki: OpenWiki, asked: History, budget: int) -> PageHistory:
    path = wiki.names.meant(asked.path)
    found = wiki.handle.contents.history(path, asked.limit + 1)
    entries = _fitting([commit_document(commit) for commit in found[: asked.limit]], budget)
    rest: Rest | None = None
    if len(entries) < len(found):
        wider = {"limit": min(200, asked.limit * 2), "max_tokens": min(50_000, budget * 2)}
        rest = {
            "told": "There are older commits.",
            "tool": "page_history",
            "arguments": {"path": asked.path, **wider},
        }
    return {"path": wiki.names.shown(path), "history": entries, "rest": rest}


def _stale(handle: WikiHandle) -> bool:
    """Whether the index has not reached HEAD; raises NothingIndexed where it holds no page yet: that is no answer."""
    known = handle.contents.list(Filter(), 1)
    if not known.total:
        raise NothingIndexed("no page of this wiki is indexed yet", hint="wait for its first sync")
    head = handle.stamp()[2]
    return head is not None and head != known.indexed_revision


def _fitting(items: Sequence[T], budget: int) -> list[T]:
    return fitting(items, lambda item: tokens(str(item)), budget)


def _more(
    tool: str, arguments: dict[str, Any], offset: int, left: int, noun: str, *, exact: bool = True
) -> Rest | None:
    if left <= 0:
        return None
    told = f"{left} more {noun}." if exact else f"There are more {noun}."
    return {"told": told, "tool": tool, "arguments": {**arguments, "offset": offset}}
