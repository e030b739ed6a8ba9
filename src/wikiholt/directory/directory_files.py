"""Lists the page files of a directory on disk, and reads them so that no half-written file is taken.

Symbolic links are never followed. A file counts as complete if it has not been modified for a moment and its size,
times and inode are the same before and after it is read.
"""

import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from wikiholt.domain.git import EntryKind
from wikiholt.errors import NotWritable, SourceCorrupt, SourceError, SourceMissing, WikiholtError
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import find_repository
from wikiholt.git.worktree import open_parent

QUIET_TIME_S = 0.3
"""How long a file must be unmodified before it is read."""
TEMPORARY_PREFIX = ".wikiholt-"
"""The beginning of the names of temporary files."""
_NEVER_LISTED = frozenset({".git"})


class FileStamp(NamedTuple):
    """The signs by which a change of a file is detected without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(slots=True)
class Listing:
    """The entries of a directory that are pages or have to be reported, by path from its root."""

    entries: dict[str, tuple[EntryKind, FileStamp]] = field(default_factory=dict)
    unreadable: dict[str, str] = field(default_factory=dict)
    """Directories that could not be listed, with the reason."""
    temporary: list[str] = field(default_factory=list)
    """Temporary files of writers."""


def list_files(root: Path, is_page: Callable[[str], bool], is_pruned: Callable[[str], bool]) -> Listing:
    """List the pages below the root, and links that have a page's name or lead to a directory.

    `is_pruned` tells whether a directory need not be entered. Raises SourceMissing, and SourceCorrupt if the root
    itself cannot be listed.
    """
    listing = Listing()
    pending = [""]
    while pending:
        directory = pending.pop()
        try:
            with os.scandir(root / directory if directory else root) as entries:
                found = list(entries)
        except OSError as error:
            if not directory:
                raise make_root_error(root, error) from error
            if not isinstance(error, FileNotFoundError | NotADirectoryError):  # else it was removed meanwhile
                listing.unreadable[directory] = error.strerror or str(error)
            continue
        prefix = f"{directory}/" if directory else ""
        for entry in found:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if entry.name not in _NEVER_LISTED and not is_pruned(path):
                    pending.append(path)
            elif entry.is_symlink():
                if is_page(path) or (_leads_to_directory(entry) and not is_pruned(path)):
                    _add_entry(listing, path, EntryKind.SYMLINK, entry)
            elif is_page(path) and entry.is_file(follow_symlinks=False):
                _add_entry(listing, path, EntryKind.FILE, entry)
            elif entry.name.startswith(TEMPORARY_PREFIX):
                listing.temporary.append(path)
    return listing


def _add_entry(listing: Listing, path: str, kind: EntryKind, entry: "os.DirEntry[str]") -> None:
    try:
        listing.entries[path] = (kind, make_stamp(entry.stat(follow_symlinks=False)))
    except FileNotFoundError:
        pass  # removed meanwhile
    except OSError as error:
        listing.unreadable[path] = error.strerror or str(error)


def _leads_to_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return True


def make_stamp(status: os.stat_result) -> FileStamp:
    """The stamp of a file with this status."""
    return FileStamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def find_stamp(root: Path, path: str) -> FileStamp | None:
    """The stamp of a regular file, or None if there is none. Follows no links."""
    try:
        with open_parent(root, path) as (directory, name):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError, NotWritable):  # NotWritable: a parent is a link
        return None
    return make_stamp(status) if stat.S_ISREG(status.st_mode) else None


def find_directory_stamps(root: Path, files: Iterable[str]) -> list[FileStamp]:
    """The stamps of the directories from which these files were removed: of the nearest ones that still exist."""
    stamps = []
    for directory in {os.path.dirname(file) for file in files}:  # noqa: PTH120
        path = root / directory
        while path != root and not path.is_dir():
            path = path.parent
        with suppress(OSError):
            stamps.append(make_stamp(path.stat()))
    return stamps


def list_names(root: Path, directory: str) -> list[str]:
    """The names in a directory (empty for the root); none if it does not exist. Follows no links."""
    try:
        with open_parent(root, f"{directory}/." if directory else ".") as (descriptor, _):
            return os.listdir(descriptor)  # noqa: PTH208 - by descriptor, so that no link is followed
    except (OSError, NotWritable):
        return []


def read_file(root: Path, path: str, stamp: FileStamp) -> bytes | None:
    """The content of a file with this stamp; None if the file has changed or changes while it is read.

    Raises OSError if the file cannot be read.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        with (
            open_parent(root, path) as (directory, name),
            os.fdopen(os.open(name, flags, dir_fd=directory), "rb") as file,
        ):
            if make_stamp(os.fstat(file.fileno())) != stamp:
                return None
            data = file.read(stamp.size + 1)
            after = make_stamp(os.fstat(file.fileno()))
    except (FileNotFoundError, NotADirectoryError, NotWritable):
        return None
    return data if after == stamp and len(data) == stamp.size else None


def read_link(root: Path, path: str) -> bytes | None:
    """The target of a symbolic link; None if there is none any more."""
    try:
        with open_parent(root, path) as (directory, name):
            return os.fsencode(os.readlink(name, dir_fd=directory))
    except (OSError, NotWritable):
        return None


def wait_until_quiet(stamps: Iterable[FileStamp], stop: Callable[[], bool]) -> None:
    """Wait until none of the files was modified within the quiet time, as far as their times tell.

    A file with a time in the future, after the clock was set back, does not delay more than one that was just modified.
    """
    now_ns = time.time_ns()
    ages = [abs(now_ns - max(stamp.mtime_ns, stamp.ctime_ns)) / 1e9 for stamp in stamps]
    remaining = max((QUIET_TIME_S - age for age in ages), default=0.0)
    deadline = time.monotonic() + min(remaining, QUIET_TIME_S)
    while (left := deadline - time.monotonic()) > 0 and not stop():
        time.sleep(min(left, 0.05))


def iter_below(paths: Iterable[str], directories: Mapping[str, str]) -> Iterator[str]:
    """The paths that are in one of the directories."""
    prefixes = tuple(f"{directory}/" for directory in directories)
    return (path for path in paths if prefixes and path.startswith(prefixes))


def make_root_error(root: Path, error: OSError) -> SourceError:
    """The error for a directory that cannot be listed."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return SourceMissing(
            f"The directory {root} does not exist.",
            hint="Check the path, and that its disk is mounted. The index is kept and keeps answering.",
        )
    return SourceCorrupt(
        f"The directory {root} cannot be read: {error.strerror or error}.",
        hint="Check that the user who runs wikiholt may read it.",
    )


# The files of a checkout that git ignores: build outputs and installed packages are no pages of a wiki. A repository
# that ignores the entire directory (a vault in a home directory that is a repository) does not count.


_LIST_COMMAND = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")

_PLAIN_NAMES = {"GIT_LITERAL_PATHSPECS": "0"}
"""`check-ignore` accepts no literal names; those that begin with `./` have no special meaning."""


def list_ignored_files(root: Path, timeout_s: float) -> frozenset[str]:
    """The files and directories (with a slash at the end) below `root` that git ignores; none outside of a checkout."""
    ignored = _run_git(root, timeout_s, *_LIST_COMMAND)
    return frozenset() if "./" in ignored else frozenset(ignored)


def is_ignored(file: str, ignored: frozenset[str]) -> bool:
    """Whether a file, or a directory that contains it, is among the ignored ones."""
    return file in ignored or any(f"{parent}/" in ignored for parent in PurePosixPath(file).parents)


def find_ignored_names(root: Path, files: Sequence[str], timeout_s: float) -> list[str]:
    """Those of the files, which need not exist, that git would ignore."""
    ignored = _run_git(root, timeout_s, "check-ignore", "-z", "--stdin", names=[".", *(f"./{file}" for file in files)])
    return [] if "." in ignored else [name.removeprefix("./") for name in ignored]


def _run_git(root: Path, timeout_s: float, *command: str, names: Sequence[str] = ()) -> list[str]:
    """The paths that git prints in the checkout that contains `root`; none if there is no checkout."""
    for top in (root, *root.parents):
        try:
            git = GitRunner(find_repository(top), timeout_s)
            data = b"".join(os.fsencode(name) + b"\0" for name in names)
            listed = git.run("-C", str(root), f"--work-tree={top}", *command, input_data=data, environment=_PLAIN_NAMES)
        except (WikiholtError, OSError):
            continue
        return [os.fsdecode(path) for path in listed.stdout.split(b"\0")[:-1]] if listed.status == 0 else []
    return []
