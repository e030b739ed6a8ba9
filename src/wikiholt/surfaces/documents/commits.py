"""Commits, as documents."""

from collections.abc import Sequence

from typing_extensions import TypedDict

from wikiholt.model import Commit, LogEntry
from wikiholt.surfaces.documents.moments import format_date
from wikiholt.surfaces.documents.names import STORED_PATHS, PathStyle
from wikiholt.text.page import get_page_path


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


class ChangeDocument(CommitDocument):
    """A commit with the pages it touched."""

    pages_affected: list[str]


class ChangelogDocument(TypedDict):
    """Commits that touched a page, newest first; `total` is how many are listed here."""

    entries: list[ChangeDocument]
    total: int


def build_commit_document(commit: Commit) -> CommitDocument:
    return {
        "revision": commit.revision,
        "author": commit.author,
        "email": commit.email,
        "date": format_date(commit.date),
        "message": commit.message,
    }


def build_changelog_document(entries: Sequence[LogEntry], path_style: PathStyle = STORED_PATHS) -> ChangelogDocument:
    return {
        "entries": [
            {**build_commit_document(entry.commit), "pages_affected": [path_style.to_display_path(get_page_path(file)) for file in entry.files]}
            for entry in entries
        ],
        "total": len(entries),
    }
