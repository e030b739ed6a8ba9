"""The tools that list pages, links and tags. Each result has the call that returns the rest."""

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, cast

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.documents.page_documents import (
    LinksDocument,
    OrphansDocument,
    PageListDocument,
    build_links_document,
    build_orphans_document,
    build_page_list_document,
)
from wikiholt.api.documents.search_documents import build_facets_document
from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS, PageFilter
from wikiholt.errors import NothingIndexed
from wikiholt.interfaces.mcp.mcp_tool import tool
from wikiholt.interfaces.mcp.text_output import (
    build_list_continuation,
    fit_to_budget,
    join_lines,
    take_fitting,
    take_shortened,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    TEXT_PATTERN,
    Continuation,
    FilterArguments,
    PagedArguments,
    PagePathArgument,
)
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.session import WikiSession

T = TypeVar("T")

_PAGE_TEXTS = ("name", "category", "tags")


class ListPagesArguments(FilterArguments):
    limit: int = Field(100, ge=1, le=1000, description="Maximum number of entries.")
    offset: int = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")


class ListPagesResult(PageListDocument):
    """Pages by path; `total` is the number of all matches."""

    offset: int
    stale: bool
    continuation: Continuation | None


class OrphansResult(OrphansDocument):
    """Pages that no other page links to."""

    offset: int
    stale: bool
    continuation: Continuation | None


def _format_page_list(result: ListPagesResult | OrphansResult) -> str:
    if not result["pages"]:
        return f"No pages here (of {result['total']})." if result["total"] else "No pages match."
    last = result["offset"] + len(result["pages"])
    head = f"Pages {result['offset'] + 1}-{last} of {result['total']}:"
    lines = [head]
    for page in result["pages"]:
        details = [f"{page['content_length']} words", *filter(None, [page["category"]]), *page["tags"]]
        lines.append(f"- {page['path']}: {page['name']} ({', '.join(details)})")
    return join_lines(lines, result["continuation"], stale=result["stale"])


@tool(
    "List pages",
    "List pages by path: all, or those with a tag, in a category, below a path, or updated since a date.",
    _format_page_list,
    needs_own_writes=True,
)
def list_pages(wiki: WikiSession, params: ListPagesArguments, budget: int) -> ListPagesResult:
    with wiki.open_snapshot() as snapshot:
        page_list = snapshot.pages.list(wiki.to_git_filter(params.to_filter()), params.limit, params.offset)
        stale = _is_stale(snapshot)
    document = build_page_list_document(page_list, wiki.path_style)
    return cast(ListPagesResult, _fit_page_list("list_pages", document, params, budget, stale=stale))


@tool(
    "Find orphaned pages",
    "List pages that no other page links to.",
    _format_page_list,
    needs_own_writes=True,
)
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
        pages = take_shortened(document["pages"], _PAGE_TEXTS, share)
        done = params.offset + len(pages)
        return {
            **document,
            "pages": pages,
            "offset": params.offset,
            "stale": stale,
            "continuation": build_list_continuation(tool, params, done, document["total"] - done, "pages"),
        }

    return fit_to_budget(build, _format_page_list, budget)


class LinksArguments(PagedArguments):
    """Arguments of get_links. Limit and offset are for each direction."""

    path: PagePathArgument


class LinksResult(LinksDocument):
    """Outgoing links, incoming links, and broken links of a page."""

    totals: dict[str, int]
    stale: bool
    continuation: Continuation | None


def _format_links(links: LinksResult) -> str:
    totals = links["totals"]
    lines = [
        links["path"],
        *_format_paths(f"links to ({totals['links_to']})", links["links_to"]),
        *_format_paths(f"is linked from ({totals['linked_from']})", links["linked_from"]),
        *_format_paths(f"broken links ({totals['missing']})", links["missing"]),
    ]
    return join_lines(lines, links["continuation"], stale=links["stale"])


def _format_paths(label: str, paths: Iterable[str]) -> list[str]:
    return [f"{label}:", *(f"- {path}" for path in paths)]


@tool(
    "Follow links",
    "List the pages a page links to, the pages that link to it, and its broken links.",
    _format_links,
    needs_own_writes=True,
)
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
            "totals": dict(zip(("links_to", "linked_from", "missing"), map(len, lists), strict=True)),
            "stale": stale,
            "continuation": continuation,
        }

    return fit_to_budget(build, _format_links, budget)


class ListTagsArguments(PagedArguments):
    prefix: str = Field(
        "", max_length=MAX_FILTER_VALUE_CHARS, pattern=TEXT_PATTERN, description="Only below this folder."
    )


class ListTagsResult(TypedDict):
    """Tags, categories and the folders directly below the prefix, with their numbers of pages."""

    pages: int
    tags: dict[str, int]
    categories: dict[str, int]
    folders: dict[str, int]
    continuation: Continuation | None


def _format_tags(result: ListTagsResult) -> str:
    lines = [f"{result['pages']} pages. Numbers are pages."]
    for label in ("tags", "categories", "folders"):
        values = ", ".join(f"{value} ({count})" for value, count in result[label].items())
        lines.append(f"{label}: {values or 'none'}")
    return join_lines(lines, result["continuation"])


@tool(
    "List tags and folders",
    "List the tags, categories and folders of the wiki, with their numbers of pages.",
    _format_tags,
    needs_own_writes=True,
)
def list_tags(wiki: WikiSession, params: ListTagsArguments, budget: int) -> ListTagsResult:
    with wiki.open_snapshot() as snapshot:
        where = wiki.to_git_filter(PageFilter(path_prefix=params.prefix))
        document = build_facets_document(snapshot.pages.get_facets(where))
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

    return fit_to_budget(build, _format_tags, budget)


def _cut_lists(
    lists: Sequence[list[T]], share: int, tool_name: str, params: PagedArguments
) -> tuple[list[list[T]], Continuation | None]:
    """The same number of entries of each list, so that one offset continues all of them."""
    start, end = params.offset, params.offset + params.limit
    shown = [take_fitting(items[start:end], share // len(lists)) for items in lists]
    cut = (part for part, items in zip(shown, lists, strict=True) if start + len(part) < len(items))
    step = min(map(len, cut), default=0)
    if step:
        shown = [part[:step] for part in shown]
    remaining = max(map(len, lists)) - start - max(map(len, shown))
    return shown, build_list_continuation(tool_name, params, start + step, remaining if step else 0, "entries")


def _is_stale(snapshot: IndexSnapshot) -> bool:
    """Whether the index is behind HEAD. Raises NothingIndexed if it has no page yet."""
    indexed = snapshot.pages.list(PageFilter(), 1)
    if not indexed.total:
        raise NothingIndexed("no page of this wiki is indexed yet", hint="wait for its first sync")
    return snapshot.version.head not in (None, indexed.indexed_revision)
