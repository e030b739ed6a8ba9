"""JSON documents of pages, commits, links and attachments.

Field names follow otterwiki-api where it has the field.
"""

from collections.abc import Sequence
from typing import Any

from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document
from wikiholt.domain.page import (
    PageContent,
    PageLink,
    PageLinks,
)
from wikiholt.domain.search import StoredPage
from wikiholt.wikis.session import STORED_PATHS, PathStyle


class CommitDocument(TypedDict):
    """A commit."""

    revision: str
    author: str
    email: str
    date: str
    message: str


class HistoryDocument(TypedDict):
    """The commits that changed a page, newest first."""

    path: str
    history: list[CommitDocument]
    next_offset: int | None


class ChangeDocument(CommitDocument):
    """A commit with the pages that it changed; `position` is the number of commits before it in the changelog."""

    pages_affected: list[str]
    position: int


class ChangelogDocument(TypedDict):
    """Commits that changed pages, newest first; `total` counts those listed, the others begin at `next_offset`."""

    entries: list[ChangeDocument]
    total: int
    more: bool
    next_offset: int | None


# Pages


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
    """Pages sorted by path; `total` is the number of all matching pages."""

    pages: list[ListedPageDocument]
    total: int
    indexed_revision: str | None


class PageDocument(TypedDict):
    """A page as stored in git; `revision` is the commit that last changed it."""

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


class PageWriteDocument(TypedDict):
    """A page after a write; `changed` is false if the content was the same."""

    name: str
    path: str
    revision: str
    created: bool
    changed: bool
    warnings: list[str]


class PageDeleteDocument(TypedDict):
    """A page that this revision deleted."""

    deleted: bool
    path: str
    revision: str


class MovedPathDocument(TypedDict):
    """The old and new path of a sub-page or an attachment."""

    old_path: str
    new_path: str


class PageRenameDocument(TypedDict):
    """A page that this revision renamed, the pages whose links it updated, and what moved with the page."""

    name: str
    old_path: str
    new_path: str
    revision: str
    updated_pages: list[str]
    moved: list[MovedPathDocument]


def build_listed_page_document(page: StoredPage, path_style: PathStyle) -> ListedPageDocument:
    return build_document(ListedPageDocument, page, path_style, content_length=page.words)


def build_page_document(page: PageContent, path_style: PathStyle = STORED_PATHS) -> PageDocument:
    return build_document(
        PageDocument,
        page,
        path_style,
        frontmatter=dict(page.frontmatter) or None,
        category=page.metadata.category,
        tags=page.metadata.tags,
        last_updated=page.metadata.last_updated,
        content_length=page.words,
        **_build_link_lists(page, path_style),
        last_commit=build_document(CommitDocument, page.last_commit) if page.last_commit else None,
    )


def to_display_paths(links: Sequence[PageLink], path_style: PathStyle) -> list[str]:
    """The path of each linked page once, in the order of the links."""
    return list(dict.fromkeys(path_style.to_display_path(link.path) for link in links))


# Links


class LinksDocument(TypedDict):
    """The pages that a page links to, the pages that link to it, and link targets that do not exist."""

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
    """All pages and the links between them; `missing` are links to pages that do not exist."""

    nodes: list[str]
    edges: list[EdgeDocument]
    missing: list[EdgeDocument]
    indexed_revision: str | None


def build_links_document(links: PageLinks, path_style: PathStyle = STORED_PATHS) -> LinksDocument:
    return build_document(LinksDocument, links, path_style, **_build_link_lists(links, path_style))


def _build_link_lists(links: PageLinks | PageContent, path_style: PathStyle) -> dict[str, list[str]]:
    return {
        "links_to": to_display_paths(links.links_to, path_style),
        "linked_from": to_display_paths(links.linked_from, path_style),
        "missing": [path_style.to_display_path(path) for path in links.missing],
    }


# Files attached to pages. The field names are those that otterwiki-mcp reads.


class AttachmentDocument(TypedDict):
    """A file attached to a page; `size` is in bytes."""

    filename: str
    size: int
    mime_type: str
    last_modified: str | None


class AttachmentsDocument(TypedDict):
    """The files attached to a page, sorted by name."""

    path: str
    attachments: list[AttachmentDocument]
    total: int


class AttachmentContentDocument(TypedDict):
    """A file attached to a page, with its content in base64."""

    filename: str
    path: str
    content: str
    size: int
    mime_type: str


class AttachmentAddDocument(TypedDict):
    """A file that this revision attached to a page."""

    filename: str
    path: str
    size: int
    mime_type: str
    revision: str
    created: bool


class AttachmentRemoveDocument(TypedDict):
    """A file that this revision removed from a page."""

    deleted: bool
    filename: str
    path: str
    revision: str
