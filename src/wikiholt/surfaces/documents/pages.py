"""Pages, their links and their history, as documents. Names are those of otterwiki-api where it has them."""

from collections.abc import Sequence
from typing import Any

from typing_extensions import TypedDict

from wikiholt.model import (
    Deleted,
    PageContent,
    PageLink,
    PageList,
    Renamed,
    StoredPage,
    Written,
)
from wikiholt.surfaces.documents.commits import CommitDocument, commit_document
from wikiholt.surfaces.documents.moments import moment
from wikiholt.surfaces.documents.names import AS_STORED, Names


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


def list_document(found: PageList, names: Names = AS_STORED) -> PageListDocument:
    return {
        "pages": [listed_page_document(page, names) for page in found.pages],
        "total": found.total,
        "indexed_revision": found.indexed_revision,
    }


def listed_page_document(page: StoredPage, names: Names = AS_STORED) -> ListedPageDocument:
    return {
        "name": names.titled(page.name, page.path),
        "path": names.shown(page.path),
        "file": page.file,
        "category": page.category,
        "tags": list(page.tags),
        "last_updated": moment(page.last_updated),
        "content_length": page.words,
    }


def page_document(page: PageContent, names: Names = AS_STORED) -> PageDocument:
    return {
        "name": names.titled(page.name, page.path),
        "path": names.shown(page.path),
        "file": page.file,
        "content": page.content,
        "frontmatter": dict(page.frontmatter) or None,
        "category": page.metadata.category,
        "tags": list(page.metadata.tags),
        "last_updated": moment(page.metadata.last_updated),
        "content_length": page.words,
        "links_to": paths(page.links_to, names),
        "linked_from": paths(page.linked_from, names),
        "missing": [names.shown(path) for path in page.missing],
        "revision": page.revision,
        "read_at": page.read_at,
        "last_commit": commit_document(page.last_commit) if page.last_commit else None,
        "warnings": list(page.warnings),
        "notes": list(page.notes),
    }


def written_document(written: Written, names: Names = AS_STORED) -> WrittenDocument:
    return {
        "name": names.titled(written.name, written.path),
        "path": names.shown(written.path),
        "revision": written.revision,
        "created": written.created,
        "changed": written.changed,
        "warnings": list(written.warnings),
    }


def deleted_document(deleted: Deleted, names: Names = AS_STORED) -> DeletedDocument:
    return {"deleted": True, "path": names.shown(deleted.path), "revision": deleted.revision}


def renamed_document(renamed: Renamed, names: Names = AS_STORED) -> RenamedDocument:
    return {
        "name": names.titled(renamed.name, renamed.path),
        "old_path": names.shown(renamed.old_path),
        "new_path": names.shown(renamed.path),
        "revision": renamed.revision,
        "updated_pages": [names.shown(path) for path in renamed.updated],
    }


def paths(links: Sequence[PageLink], names: Names = AS_STORED) -> list[str]:
    """Each page once, in the order of the links."""
    return list(dict.fromkeys(names.shown(link.path) for link in links))
