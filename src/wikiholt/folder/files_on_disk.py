"""Lists the files of a directory on disk, and reads them so that no half-written file is taken.

Symbolic links are never followed. A file is complete if it has not been modified for a moment and its stamp is the same
before and after it is read.
"""

import os
import stat
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote

from wikiholt.domain.git import Blob
from wikiholt.errors import NotWritable, SourceCorrupt, SourceError, SourceMissing, WikiholtError
from wikiholt.git.objects import hash_object
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import find_repository
from wikiholt.git.worktree import open_parent

QUIET_TIME_S = 0.3
"""How long a file must be unmodified before it is read."""
TEMPORARY_PREFIX = ".wikiholt-"
"""The beginning of the names of temporary files."""


class FileStamp(NamedTuple):
    """The signs by which a change of a file is detected without reading it."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def from_status(cls, status: os.stat_result) -> "FileStamp":
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)

    def __str__(self) -> str:
        return ":".join(map(str, self))

    def is_quiet(self) -> bool:
        """Whether the file has not just been modified. A time in the future, after the clock was set back, counts."""
        return abs(time.time_ns() - max(self.mtime_ns, self.ctime_ns)) >= QUIET_TIME_S * 1e9


def wait_quiet_time(stop: Callable[[], bool]) -> None:
    """Wait until a file that is not modified meanwhile is quiet."""
    deadline = time.monotonic() + QUIET_TIME_S
    while (left := deadline - time.monotonic()) > 0 and not stop():
        time.sleep(min(left, 0.05))


_HASH_SAMPLE = "0" * 40
_READ_TRIES = 3
UNREAD_PREFIX = "unread:"
_ATTACHMENT = "file:"


def hash_content(data: bytes) -> str:
    """The hash of a file's content, which is its blob in a git repository too."""
    return hash_object(data, _HASH_SAMPLE)


def make_unread_id(size: int) -> str:
    """The id instead of a hash for a file that is too large to be read, or, with the size -1, cannot be read."""
    return f"{UNREAD_PREFIX}{size}"


def make_attachment_id(stamp: FileStamp, file: str) -> str:
    """The id instead of a hash for an attachment, which is not read."""
    return f"{_ATTACHMENT}{stamp}:{quote(file)}"


def parse_attachment_id(blob: str) -> tuple[FileStamp, str] | None:
    """Stamp and file of an attachment; None for another id."""
    if not blob.startswith(_ATTACHMENT):
        return None
    stamp, _, file = blob.removeprefix(_ATTACHMENT).rpartition(":")
    return FileStamp(*map(int, stamp.split(":"))), unquote(file)


class Listing(NamedTuple):
    """The entries of a directory and of those below it, by path from its root."""

    entries: dict[str, "os.DirEntry[str]"]
    """All but the directories that were entered."""
    unreadable: set[str]
    """Directories that could not be listed."""


def list_files(root: Path, is_pruned: Callable[[str], bool]) -> Listing:
    """List a directory, without `.git` and the directories for which `is_pruned` is true.

    Raises SourceMissing, and SourceCorrupt if the root itself cannot be listed.
    """
    listing = Listing({}, set())
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
                listing.unreadable.add(directory)
            continue
        prefix = f"{directory}/" if directory else ""
        for entry in found:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False) and entry.name != ".git" and not is_pruned(path):
                pending.append(path)
            else:
                listing.entries[path] = entry
    return listing


def leads_to_directory(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a directory, or a link that leads to one or to itself."""
    try:
        return entry.is_dir()
    except OSError:
        return True


def find_stamp(root: Path, path: str) -> FileStamp | None:
    """The stamp of a regular file, or None if there is none. Follows no links."""
    try:
        with open_parent(root, path) as (directory, name):
            status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError, NotWritable):  # NotWritable: a parent is a link
        return None
    return FileStamp.from_status(status) if stat.S_ISREG(status.st_mode) else None


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
            if FileStamp.from_status(os.fstat(file.fileno())) != stamp:
                return None
            data = file.read(stamp.size + 1)
            after = FileStamp.from_status(os.fstat(file.fileno()))
    except (FileNotFoundError, NotADirectoryError, NotWritable):
        return None
    return data if after == stamp and len(data) == stamp.size else None


def read_current_file(root: Path, path: str, max_bytes: int) -> Blob | None:
    """A file as it is now, without its data if it is too large; None if there is none. Raises OSError.

    The id is empty if the file changes all the time.
    """
    for _ in range(_READ_TRIES):
        stamp = find_stamp(root, path)
        if stamp is None:
            return None
        if stamp.size > max_bytes:
            return Blob(make_unread_id(stamp.size), stamp.size, None)
        data = read_file(root, path, stamp)
        if data is not None:
            return Blob(hash_content(data), stamp.size, data)
    return Blob("", -1, None)


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


def list_ignored_files(root: Path, timeout_s: float) -> set[str]:
    """The files and directories (with a slash at the end) below `root` that git ignores; none outside of a checkout."""
    ignored = _run_git(root, timeout_s, *_LIST_COMMAND)
    return set() if "./" in ignored else ignored


def find_ignored_names(root: Path, files: Sequence[str], timeout_s: float) -> set[str]:
    """Those of the files, which need not exist, that git would ignore."""
    ignored = _run_git(root, timeout_s, "check-ignore", "-z", "--stdin", names=[".", *(f"./{file}" for file in files)])
    return set() if "." in ignored else {name.removeprefix("./") for name in ignored}


def _run_git(root: Path, timeout_s: float, *command: str, names: Sequence[str] = ()) -> set[str]:
    """The paths that git prints in the checkout that contains `root`; none if there is no checkout."""
    for top in (root, *root.parents):
        try:
            git = GitRunner(find_repository(top), timeout_s)
            data = b"".join(os.fsencode(name) + b"\0" for name in names)
            listed = git.run("-C", str(root), f"--work-tree={top}", *command, input_data=data, environment=_PLAIN_NAMES)
        except (WikiholtError, OSError):
            continue
        return {os.fsdecode(path) for path in listed.stdout.split(b"\0")[:-1]} if listed.status == 0 else set()
    return set()
