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
        "links_to": paths(page.links_to),
        "linked_from": paths(page.linked_from),
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


def paths(links: Sequence[PageLink]) -> list[str]:
    """Each page once, in the order of the links."""
    return list(dict.fromkeys(link.path for link in links))
