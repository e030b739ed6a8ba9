"""What a git repository gives."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path


class EntryKind(StrEnum):
    FILE = "file"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"


@dataclass(frozen=True, slots=True)
class TreeEntry:
    """A page's place in a tree: the blob it holds, or why it is not a file."""

    blob: str
    kind: EntryKind = EntryKind.FILE


@dataclass(frozen=True, slots=True)
class TreeChange:
    """A page file that differs between two trees; None where it is not there."""

    file: str
    old: TreeEntry | None
    new: TreeEntry | None


@dataclass(frozen=True, slots=True)
class Blob:
    """A blob as read; `data` is None when it is larger than asked for or missing (`size` is -1 then)."""

    id: str
    size: int
    data: bytes | None


@dataclass(frozen=True, slots=True)
class AttachedFile:
    """A file that lies beside pages and is none, with the size of its blob in bytes."""

    blob: str
    size: int


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of a file's history; `date` is when its author wrote it."""

    revision: str
    author: str
    email: str
    date: datetime
    message: str


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One commit of the whole wiki, with the page files it touched."""

    commit: Commit
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What a page was before: `file` is the page today; `then`, from the top of the repository, is where it lay."""

    file: str
    old_file: str
    blob: str


@dataclass(frozen=True, slots=True)
class Author:
    """Who a commit is by."""

    name: str
    email: str


@dataclass(frozen=True, slots=True)
class FileEdit:
    """One file of a commit to be made: what it shall hold (None: be gone) and the blob that must be there before.

    It is a page, unless it is `attached` to one.
    """

    file: str
    data: bytes | None
    expected_blob: str | None
    is_attachment: bool = False


@dataclass(frozen=True, slots=True)
class DiscoveredRepository:
    """A repository found in a directory of wikis. With a `reason`, it cannot be registered.

    If `confined_to` is set, git must not read anything outside that directory.
    """

    slug: str
    path: Path
    reason: str = ""
    confined_to: Path | None = None
