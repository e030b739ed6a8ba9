"""Pages, their links and their history, as documents. Names are those of otterwiki-api where it has them."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import TypedDict

from wikiholt.model import (
    PageDeleteResult,
    PageContent,
    PageLink,
    PageList,
    PageRenameResult,
    StoredPage,
    PageWriteResult,
)
from wikiholt.surfaces.documents.commits import CommitDocument, build_commit_document
from wikiholt.surfaces.documents.moments import format_date
from wikiholt.surfaces.documents.names import STORED_PATHS, PathStyle


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


class PageWriteDocument(TypedDict):
    """A page after a write; `changed` is false where it held that content already."""

    name: str
    path: str
    revision: str
    created: bool
    changed: bool
    warnings: list[str]


class PageDeleteDocument(TypedDict):
    """A page that is gone since this revision."""

    deleted: bool
    path: str
    revision: str


class PageRenameDocument(TypedDict):
    """A page that has another path since this revision, and the pages whose links follow it."""

    name: str
    old_path: str
    new_path: str
    revision: str
    updated_pages: list[str]


def build_page_list_document(page_list: PageList, path_style: PathStyle = STORED_PATHS) -> PageListDocument:
    return {
        "pages": [build_listed_page_document(page, path_style) for page in page_list.pages],
        "total": page_list.total,
        "indexed_revision": page_list.indexed_revision,
    }


def build_listed_page_document(page: StoredPage, path_style: PathStyle = STORED_PATHS) -> ListedPageDocument:
    return {
        "name": path_style.to_display_title(page.name, page.path),
        "path": path_style.to_display_path(page.path),
        "file": page.file,
        "category": page.category,
        "tags": list(page.tags),
        "last_updated": format_date(page.last_updated),
        "content_length": page.words,
    }


def build_page_document(page: PageContent, path_style: PathStyle = STORED_PATHS) -> PageDocument:
    return {
        "name": path_style.to_display_title(page.name, page.path),
        "path": path_style.to_display_path(page.path),
        "file": page.file,
        "content": page.content,
        "frontmatter": dict(page.frontmatter) or None,
        "category": page.metadata.category,
        "tags": list(page.metadata.tags),
        "last_updated": format_date(page.metadata.last_updated),
        "content_length": page.words,
        "links_to": to_display_paths(page.links_to, path_style),
        "linked_from": to_display_paths(page.linked_from, path_style),
        "missing": [path_style.to_display_path(path) for path in page.missing],
        "revision": page.revision,
        "read_at": page.read_at,
        "last_commit": build_commit_document(page.last_commit) if page.last_commit else None,
        "warnings": list(page.warnings),
        "notes": list(page.notes),
    }


def build_write_document(result: PageWriteResult, path_style: PathStyle = STORED_PATHS) -> PageWriteDocument:
    return {
        "name": path_style.to_display_title(result.name, result.path),
        "path": path_style.to_display_path(result.path),
        "revision": result.revision,
        "created": result.created,
        "changed": result.changed,
        "warnings": list(result.warnings),
    }


def build_delete_document(result: PageDeleteResult, path_style: PathStyle = STORED_PATHS) -> PageDeleteDocument:
    return {"deleted": True, "path": path_style.to_display_path(result.path), "revision": result.revision}


def build_rename_document(result: PageRenameResult, path_style: PathStyle = STORED_PATHS) -> PageRenameDocument:
    return {
        "name": path_style.to_display_title(result.name, result.path),
        "old_path": path_style.to_display_path(result.old_path),
        "new_path": path_style.to_display_path(result.path),
        "revision": result.revision,
        "updated_pages": [path_style.to_display_path(path) for path in result.updated],
    }


def to_display_paths(links: Sequence[PageLink], path_style: PathStyle = STORED_PATHS) -> list[str]:
    """Each page once, in the order of the links."""
    return list(dict.fromkeys(path_style.to_display_path(link.path) for link in links))
