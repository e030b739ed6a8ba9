"""Which repository lies at a path, so that another one that takes its place later is not mistaken for it.

Two things tell, and either of them is enough. A marker, a small file in the git directory that is named after the
wiki: it goes with every full copy of the repository (`cp -a`, `rsync -a`, a snapshot), and is gone after
`rm -rf` and after `git clone`. And the creation of the git directory, its inode and birth time: it stays when somebody
removes the marker (`rsync --delete` from a copy without one), and where no marker can be written.
"""

import ctypes
import os
import stat
import sys
from contextlib import suppress
from pathlib import Path

from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiholtError
from wikiholt.git.remote_url import is_remote
from wikiholt.git.repository import find_repository

MARKER_PREFIX = "wikiholt-"
"""The name of a marker is this and the id of the wiki."""
MARKED_WORD = "marked"
"""The first word of what is recorded of a repository in which a marker was written."""
_MARKER_TEXT = b"This repository is a wiki of Wikiholt. Copies with this file are the same wiki; see docs/sources.md.\n"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_AT_FDCWD = -100
_STATX_INO, _STATX_BTIME = 0x100, 0x800
_STATX_BYTES = 256


class GitRepositoryIdentities:
    """Tells the repositories of wikis apart. Safe to use from many threads."""

    def identify(self, source: str) -> str:
        """When the repository at this path was created, in a form to compare; empty where that cannot be told."""
        anchor = None if is_remote(source) else _find_git_directory(source)
        return _get_creation(anchor) if anchor else ""

    def bind(self, wiki: Wiki) -> str:
        """Leave a marker in the wiki's repository, if possible; returns what to record of the repository."""
        if is_remote(wiki.source):
            return ""
        anchor = _find_git_directory(wiki.source)
        if anchor is None:
            return ""
        words = (MARKED_WORD if _write_marker(wiki.source, anchor, wiki.id) else "", _get_creation(anchor))
        return " ".join(filter(None, words))

    def release(self, wiki: Wiki) -> None:
        """Remove the wiki's marker, where its repository is still there."""
        anchor = None if is_remote(wiki.source) else _find_git_directory(wiki.source)
        if anchor is not None and _has_marker(anchor, wiki.id):
            with suppress(OSError):
                os.unlink(_get_marker_path(anchor, wiki.id))  # noqa: PTH108 - paths are plain text here, see `matches`

    def matches(self, wiki: Wiki) -> bool:
        """Whether the repository at the wiki's path is the one that was recorded, as far as that can be told.

        Every request asks: where the marker is in its place this is one look at a file. A repository that is missing
        or cannot be read matches; whoever reads it is told.
        """
        if not wiki.repository or is_remote(wiki.source):
            return True
        if _has_marker(f"{wiki.source}/.git", wiki.id):
            return True
        anchor = _find_git_directory(wiki.source)
        if anchor is None or _has_marker(anchor, wiki.id):
            return True
        now = _get_creation(anchor)
        marked, recorded = split_recorded(wiki.repository)
        if not now or not recorded:
            return not marked
        return now == recorded


def split_recorded(text: str) -> tuple[bool, str]:
    """What was recorded of a repository: whether a marker was written, and its creation."""
    marked = text == MARKED_WORD or text.startswith(f"{MARKED_WORD} ")
    return marked, text.removeprefix(MARKED_WORD).strip()


def _find_git_directory(path: str) -> str | None:
    """The directory that makes the repository what it is: the git directory, of all its work trees; None if none."""
    try:
        return str(find_repository(Path(path)).common_dir)
    except (WikiholtError, OSError, ValueError):
        return None


def _get_marker_path(anchor: str, wiki_id: str) -> str:
    return f"{anchor}/{MARKER_PREFIX}{wiki_id}"


def _has_marker(anchor: str, wiki_id: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(_get_marker_path(anchor, wiki_id)).st_mode)
    except (OSError, ValueError):
        return False


def _write_marker(path: str, anchor: str, wiki_id: str) -> bool:
    """Have a marker in a git directory that lies right in the repository; no link is followed on the way.

    Whoever owns a repository could otherwise have us write a file elsewhere.
    """
    if not wiki_id or anchor not in (path, f"{path}/.git"):
        return False
    try:
        opened = [os.open(path, _DIRECTORY)]
    except (OSError, ValueError):
        return False
    try:
        if anchor != path:
            opened.append(os.open(".git", _DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[0]))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        opened.append(os.open(f"{MARKER_PREFIX}{wiki_id}", flags, 0o644, dir_fd=opened[-1]))
        os.write(opened[-1], _MARKER_TEXT)
    except FileExistsError:
        return _has_marker(anchor, wiki_id)
    except OSError:
        return False
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return True


def _get_creation(directory: str) -> str:
    """The inode and the birth time of a directory; empty where the file system does not know one."""
    try:
        found = os.stat(directory)  # noqa: PTH116
    except OSError:
        return ""
    born = getattr(found, "st_birthtime", None)
    nanoseconds = int(born * 1_000_000_000) if born else _get_birth_time_ns(directory)
    return f"{found.st_ino}-{nanoseconds}" if nanoseconds else ""


def _get_birth_time_ns(directory: str) -> int:
    """By statx, which Python does not offer before 3.15; 0 where there is none."""
    if _STATX is None:
        return 0
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if _STATX(_AT_FDCWD, os.fsencode(directory), 0, _STATX_INO | _STATX_BTIME, buffer):
        return 0
    raw = buffer.raw
    if not int.from_bytes(raw[0:4], sys.byteorder) & _STATX_BTIME:
        return 0
    seconds = int.from_bytes(raw[0x50:0x58], sys.byteorder, signed=True)
    return seconds * 1_000_000_000 + int.from_bytes(raw[0x58:0x5C], sys.byteorder)


_STATX = getattr(ctypes.CDLL(None), "statx", None) if sys.platform == "linux" else None
