"""Values read from and written to a git repository."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path


class EntryKind(StrEnum):
    FILE = "file"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """An entry of a git tree: its blob id and its kind."""

    blob: str
    kind: EntryKind = EntryKind.FILE


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A page file that differs between two trees; None where the file does not exist."""

    file: str
    old: TreeEntry | None
    new: TreeEntry | None


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of a blob. `data` is None if it exceeds the requested limit or is missing (then `size` is -1)."""

    id: str
    size: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file that is not a page, with the size of its blob in bytes."""

    blob: str
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a file's history; `date` is the author date."""

    revision: str
    author: str
    email: str
    date: datetime
    message: str


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit of the repository, by the name that a caller gave it; `date` is the committer date."""

    name: str
    revision: str
    date: datetime


@dataclass(frozen=True, slots=True)
class LaterFile:
    """What became of a file after a commit: where it is now, or else the commit that removed it, if that is known."""

    file: str | None
    removal: Commit | None = None


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit of the wiki, with the page files it touched."""

    commit: Commit
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileVersion:
    """An earlier version of a page: `file` is its current file, `old_file` its file at that time (from the root)."""

    file: str
    old_file: str
    blob: str


@dataclass(frozen=True, slots=True)
class FileHistories:
    """What the history says about files at a revision."""

    changed_at: Mapping[str, datetime]
    """When each file was last changed by a commit."""
    former_files: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The names that the files had before renames, newest first."""
    fault: str = ""
    """Why dates may be wrong and names missing; empty if the history is complete as far as they need it."""


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a commit."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One file of a commit: its new content (None deletes it) and the blob that must be there before.

    The file is a page unless `is_attachment` is set. `moved_from` is a file that the same commit deletes: this file
    gets its mode, and its content too unless `data` is set.
    """

    file: str
    data: bytes | None
    expected_blob: str | None
    is_attachment: bool = False
    moved_from: str | None = None


@dataclass(frozen=True, slots=True)
class DiscoveredRepository:
    """A repository or directory of pages to register. With a `reason`, it cannot be registered.

    If `confined_to` is set, git must not read anything outside that directory.
    """

    slug: str
    path: Path
    reason: str = ""
    confined_to: Path | None = None
    kind: str = ""
    """The setting `kind` of the wiki: empty for a repository, `directory` for a directory of pages."""
