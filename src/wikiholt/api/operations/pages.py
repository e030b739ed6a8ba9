"""Reading pages: lists, contents, commits, and links between pages."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from wikiholt.api.documents.common import build_document, build_documents
from wikiholt.api.documents.page_documents import (
    ChangelogDocument,
    CommitDocument,
    EdgeDocument,
    GraphDocument,
    HistoryDocument,
    LinksDocument,
    OrphansDocument,
    PageDocument,
    PageListDocument,
    build_links_document,
    build_listed_page_document,
    build_page_document,
)
from wikiholt.api.operations.operation import Caching, OperationTable
from wikiholt.api.operations.parameters import NO_NUL_PATTERN, Count, Flag, ListParameters, Parameters, Since
from wikiholt.domain.git import LogEntry
from wikiholt.domain.search import MAX_FILTER_VALUE_CHARS
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.live_index import IndexSnapshot
from wikiholt.wikis.pages.page_reader import is_below
from wikiholt.wikis.session import WikiSession

_LOG_BATCH = 500
_MAX_SCANNED_COMMITS = 5000
"""Commits that one call reads to find those of a folder or since a date."""
PathInUrl = Annotated[
    str, Field(max_length=1100, description="The path of the page; slashes need no encoding.", title="Path")
]


class PageParameters(Parameters):
    """The page of an operation."""

    path: PathInUrl


class PageListParameters(ListParameters):
    """Filters and paging of the page list, which is sorted by path."""

    limit: Count = Field(10_000, ge=1, le=10_000, description="Maximum number of entries.")
    offset: Count = Field(0, ge=0, le=10_000_000, description="Number of entries to skip.")


class CommitListParameters(Parameters):
    """Parameters of a list of commits, newest first."""

    limit: Count = Field(50, ge=1, le=1000, description="Maximum number of entries.")


class HistoryParameters(CommitListParameters, PageParameters):
    """Parameters of the history of a page."""

    offset: Count = Field(0, ge=0, le=10_000, description="Number of entries to skip.")


class ChangelogParameters(CommitListParameters):
    """Parameters of the changelog, newest commit first."""

    offset: Count = Field(0, ge=0, le=1_000_000, description="Number of entries to skip.")
    prefix: str = Field(
        "", max_length=MAX_FILTER_VALUE_CHARS, pattern=NO_NUL_PATTERN, description="Only pages at or below this path."
    )
    since: Since | None = Field(None, description="Only commits since a date, yesterday, or 7d, 12h, 3w ago.")
    all: Flag = Field(False, description="Also list commits that changed no page, such as those of attachments.")


class ReadParameters(PageParameters):
    """The revision of a page to read."""

    revision: str | None = Field(
        None, pattern=r"^[0-9a-fA-F]{7,64}$", description="A commit id of at least 7 digits; default: HEAD."
    )


PAGE_OPERATIONS = OperationTable("pages")
LINK_OPERATIONS = OperationTable("links")


@PAGE_OPERATIONS.add("GET /pages", caching=Caching.VERSION, needs_index=False)
def list_pages(
    wiki: WikiSession, parameters: PageListParameters, snapshot: IndexSnapshot | None = None
) -> PageListDocument:
    """List the pages that match the filters, sorted by path."""
    # Until the first sync has ended, the index has only a part of the pages; then they are listed from git.
    if snapshot is not None:
        snapshot.pages.require_complete()
    pages = snapshot.pages if snapshot is not None else wiki.handle.pages
    where = wiki.to_git_filter(parameters.to_filter())
    found = pages.list(where, parameters.limit, parameters.offset)
    listed = [build_listed_page_document(page, wiki.path_style) for page in found.pages]
    return build_document(PageListDocument, found, pages=listed)


@PAGE_OPERATIONS.add("GET /pages/{path}/history", "history", errors=(404,), page_instead="read_page")
def list_page_history(wiki: WikiSession, parameters: HistoryParameters) -> HistoryDocument:
    """List the commits that changed a page, newest first."""
    path = wiki.path_style.to_git_path(parameters.path)
    end = parameters.offset + parameters.limit
    commits = wiki.handle.pages.read_history(path, end + 1)
    return {
        "path": wiki.path_style.to_display_path(path),
        "history": build_documents(CommitDocument, commits[parameters.offset : end]),
        "next_offset": end if len(commits) > end else None,
    }


@PAGE_OPERATIONS.add("GET /pages/{path}", caching=Caching.CONTENT, errors=(404,))
def read_page(wiki: WikiSession, parameters: ReadParameters) -> PageDocument:
    """Read a page at HEAD or at a revision. Its ETag is valid for If-Match of a write."""
    page = wiki.handle.pages.read(wiki.path_style.to_git_path(parameters.path), parameters.revision)
    return build_page_document(page, wiki.path_style)


@PAGE_OPERATIONS.add("GET /changelog", "changelog")
def list_changes(wiki: WikiSession, parameters: ChangelogParameters) -> ChangelogDocument:
    """List the commits that changed pages, newest first: all, those of a folder, or since a date."""
    found, next_offset = _find_changes(wiki, parameters)
    to_display_path = wiki.path_style.to_display_path
    return {
        "entries": [
            {
                **build_document(CommitDocument, entry.commit),
                "pages_affected": [to_display_path(get_page_path(file)) for file in entry.files],
                "position": position,
            }
            for position, entry in found
        ],
        "total": len(found),  # as in otterwiki-api; the number of all of them would cost a walk of the history
        "more": next_offset is not None,
        "next_offset": next_offset,
    }


def _find_changes(wiki: WikiSession, parameters: ChangelogParameters) -> tuple[list[tuple[int, LogEntry]], int | None]:
    """The commits that match with their positions in the log, and the position to go on from; None at the end."""
    prefix, since = wiki.path_style.to_git_prefix(parameters.prefix).strip("/"), parameters.since
    found: list[tuple[int, LogEntry]] = []
    position = parameters.offset
    batch = parameters.limit + 1 if since is None and not prefix else _LOG_BATCH
    while position < parameters.offset + _MAX_SCANNED_COMMITS:
        entries = wiki.handle.pages.read_changelog(batch, position, all_commits=parameters.all)
        for entry in entries:
            matches = not prefix or any(is_below(get_page_path(file), prefix) for file in entry.files)
            if matches and (since is None or entry.commit.date >= since):
                if len(found) == parameters.limit:
                    return found, position
                found.append((position, entry))
            position += 1
        if len(entries) < batch:
            return found, None
    return found, position


@LINK_OPERATIONS.add("GET /links", "graph", caching=Caching.VERSION)
def get_link_graph(wiki: WikiSession, _: Parameters, snapshot: IndexSnapshot) -> GraphDocument:
    """List all pages and the links between them."""
    graph, to_display_path = snapshot.pages.build_graph(), wiki.path_style.to_display_path

    def build_edges(pairs: Sequence[tuple[str, str]]) -> list[EdgeDocument]:
        return [{"source": to_display_path(source), "target": to_display_path(target)} for source, target in pairs]

    return {
        "nodes": [to_display_path(page.path) for page in graph.pages],
        "edges": build_edges(graph.edges),
        "missing": build_edges(graph.missing),
        "indexed_revision": graph.indexed_revision,
    }


@LINK_OPERATIONS.add("GET /links/{path}", "links", errors=(404,))
def get_page_links(wiki: WikiSession, parameters: PageParameters) -> LinksDocument:
    """List the pages that a page links to and the pages that link to it."""
    links = wiki.handle.pages.get_links(wiki.path_style.to_git_path(parameters.path))
    return build_links_document(links, wiki.path_style)


@LINK_OPERATIONS.add("GET /orphans", "orphans")
def find_orphans(wiki: WikiSession, _: Parameters) -> OrphansDocument:
    """List the pages that no other page links to."""
    pages = [build_listed_page_document(page, wiki.path_style) for page in wiki.handle.pages.find_orphans()]
    return {"pages": pages, "total": len(pages)}
