"""Pages, their links and their history, as documents. Names are those of otterwiki-api where it has them."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import TypedDict

from wikiholt.model import (
    Commit,
    Deleted,
    Facet,
    Facets,
    LogEntry,
    PageContent,
    PageGraph,
    PageLink,
    PageLinks,
    PageList,
    Renamed,
    StoredPage,
    Written,
)
from wikiholt.surfaces.documents.moments import moment
from wikiholt.text.page import page_path


class ListedPageDocument(TypedDict):
    """A page in a list; `content_length` counts words."""

    name: str
    path: str
    file: str
    category: str | None
    tags: list[str]
    last_updated: str | None
    content_length: int


class PageListDocument(TypedDict):
    """Some pages, by path; `total` is how many there are."""

    pages: list[ListedPageDocument]
    total: int
    indexed_revision: str | None


class CommitDocument(TypedDict):
    """A commit."""

    revision: str
    author: str
    email: str
    date: str
    message: str


class PageDocument(TypedDict):
    """A page as git has it; `revision` is the commit that last changed it."""

    name: str
    path: str
    file: str
    content: str
    frontmatter: dict[str, Any] | None
    category: str | None
    tags: list[str]
    last_updated: str | None
    content_length: int
    links_to: list[str]
    linked_from: list[str]
    missing: list[str]
    revision: str
    read_at: str
    last_commit: CommitDocument | None
    warnings: list[str]
    notes: list[str]


class WrittenDocument(TypedDict):
    """A page after a write; `changed` is false where it held that content already."""

    name: str
    path: str
    revision: str
    created: bool
    changed: bool
    warnings: list[str]


class DeletedDocument(TypedDict):
    """A page that is gone since this revision."""

    deleted: bool
    path: str
    revision: str


class RenamedDocument(TypedDict):
    """A page that has another path since this revision, and the pages whose links follow it."""

    name: str
    old_path: str
    new_path: str
    revision: str
    updated_pages: list[str]


class HistoryDocument(TypedDict):
    """The commits that changed a page, newest first."""

    path: str
    history: list[CommitDocument]


class ChangeDocument(CommitDocument):
    """A commit with the pages it touched."""

    pages_affected: list[str]


class ChangelogDocument(TypedDict):
    """Commits that touched a page, newest first; `total` is how many are listed here."""

    entries: list[ChangeDocument]
    total: int


class LinksDocument(TypedDict):
    """The pages a page links to, those that link to it, and paths it links to that are no page."""

    path: str
    links_to: list[str]
    linked_from: list[str]
    missing: list[str]


class OrphansDocument(TypedDict):
    """Pages that no other page links to."""

    pages: list[ListedPageDocument]
    total: int


class EdgeDocument(TypedDict):
    """A link from one page to another."""

    source: str
    target: str


class GraphDocument(TypedDict):
    """All pages and the links between them; `missing` are links to what is no page."""

    nodes: list[str]
    edges: list[EdgeDocument]
    missing: list[EdgeDocument]
    indexed_revision: str | None


class FacetDocument(TypedDict):
    """A value that filters may name, and how many pages have it."""

    value: str
    count: int


class FacetsDocument(TypedDict):
    """What there is to filter by, the most frequent first."""

    pages: int
    categories: list[FacetDocument]
    tags: list[FacetDocument]
    folders: list[FacetDocument]


def list_document(found: PageList) -> PageListDocument:
    return {
        "pages": [listed_page_document(page) for page in found.pages],
        "total": found.total,
        "indexed_revision": found.indexed_revision,
    }


def listed_page_document(page: StoredPage) -> ListedPageDocument:
    return {
        "name": page.name,
        "path": page.path,
        "file": page.file,
        "category": page.category,
        "tags": list(page.tags),
        "last_updated": moment(page.last_updated),
        "content_length": page.words,
    }


def commit_document(commit: Commit) -> CommitDocument:
    return {
        "revision": commit.revision,
        "author": commit.author,
        "email": commit.email,
        "date": moment(commit.date),
        "message": commit.message,
    }


def page_document(page: PageContent) -> PageDocument:
    return {
        "name": page.name,
        "path": page.path,
        "file": page.file,
        "content": page.content,
        "frontmatter": dict(page.frontmatter) or None,
        "category": page.metadata.category,
        "tags": list(page.metadata.tags),
        "last_updated": moment(page.metadata.last_updated),
        "content_length": page.words,
        "links_to": _paths(page.links_to),
        "linked_from": _paths(page.linked_from),
        "missing": list(page.missing),
        "revision": page.revision,
        "read_at": page.read_at,
        "last_commit": commit_document(page.last_commit) if page.last_commit else None,
        "warnings": list(page.warnings),
        "notes": list(page.notes),
    }


def written_document(written: Written) -> WrittenDocument:
    return {
        "name": written.name,
        "path": written.path,
        "revision": written.revision,
        "created": written.created,
        "changed": written.changed,
        "warnings": list(written.warnings),
    }


def deleted_document(deleted: Deleted) -> DeletedDocument:
    return {"deleted": True, "path": deleted.path, "revision": deleted.revision}


def renamed_document(renamed: Renamed) -> RenamedDocument:
    return {
        "name": renamed.name,
        "old_path": renamed.old_path,
        "new_path": renamed.path,
        "revision": renamed.revision,
        "updated_pages": list(renamed.updated),
    }


def changelog_document(entries: Sequence[LogEntry]) -> ChangelogDocument:
    return {
        "entries": [
            {**commit_document(entry.commit), "pages_affected": [page_path(file) for file in entry.files]}
            for entry in entries
        ],
        "total": len(entries),
    }


def links_document(links: PageLinks) -> LinksDocument:
    return {
        "path": links.path,
        "links_to": _paths(links.links_to),
        "linked_from": _paths(links.linked_from),
        "missing": list(links.missing),
    }


def orphans_document(pages: Sequence[StoredPage]) -> OrphansDocument:
    return {"pages": [listed_page_document(page) for page in pages], "total": len(pages)}


def graph_document(graph: PageGraph) -> GraphDocument:
    return {
        "nodes": [page.path for page in graph.pages],
        "edges": [{"source": source, "target": target} for source, target in graph.edges],
        "missing": [{"source": source, "target": target} for source, target in graph.missing],
        "indexed_revision": graph.indexed_revision,
    }


def facets_document(facets: Facets) -> FacetsDocument:
    return {
        "pages": facets.pages,
        "categories": _counts(facets.categories),
        "tags": _counts(facets.tags),
        "folders": _counts(facets.folders),
    }


def _counts(facets: Sequence[Facet]) -> list[FacetDocument]:
    return [{"value": facet.value, "count": facet.count} for facet in facets]


def _paths(links: Sequence[PageLink]) -> list[str]:
    """Each page once, in the order of the links."""
    return list(dict.fromkeys(link.path for link in links))
