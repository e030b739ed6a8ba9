"""Identifies the repository at a path, so that a different repository that replaces it later is detected.

There are two signs, and either is sufficient. The marker is a small file in the git directory, named after the wiki:
every full copy of the repository (`cp -a`, `rsync -a`, a snapshot) contains it; `rm -rf` and `git clone` lose it. The
creation stamp is the inode and birth time of the git directory: it stays the same if the marker is removed (`rsync
--delete` from a copy without one) or cannot be written. Nothing is written into a directory of pages: it has only a
creation stamp.
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
"""A marker's file name is this prefix and the id of the wiki."""
MARKED_WORD = "marked"
"""The first word of the recorded identity if a marker was written."""
_MARKER_TEXT = b"This repository is a wiki of Wikiholt. Copies with this file are the same wiki; see docs/sources.md.\n"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_AT_FDCWD = -100
_STATX_INO, _STATX_BTIME = 0x100, 0x800
_STATX_BYTES = 256


class SourceIdentities:
    """Identifies the repositories and directories of wikis. Safe to use from many threads."""

    def identify(self, source: str) -> str:
        """The creation stamp of the repository or directory at this path, for comparison; empty if unknown."""
        return "" if is_remote(source) else get_creation_stamp(_find_git_directory(source) or source)

    def bind(self, wiki: Wiki) -> str:
        """Write a marker into the wiki's repository if possible; return the identity to record."""
        if wiki.is_directory:
            return get_creation_stamp(wiki.source)
        git_dir = _find_git_directory(wiki.source)
        if git_dir is None:
            return ""
        parts = (MARKED_WORD if _write_marker(wiki.source, git_dir, wiki.id) else "", get_creation_stamp(git_dir))
        return " ".join(filter(None, parts))

    def release(self, wiki: Wiki) -> None:
        """Remove the wiki's marker if its repository still exists."""
        git_dir = None if wiki.is_directory else _find_git_directory(wiki.source)
        if git_dir is not None and _has_marker(git_dir, wiki.id):
            with suppress(OSError):
                os.unlink(_get_marker_path(git_dir, wiki.id))  # noqa: PTH108 - strings for speed, see `matches`

    def matches(self, wiki: Wiki) -> bool:
        """Whether the repository at the wiki's path is the recorded one; True if that cannot be determined.

        Called by every request: with a marker in place this is one `lstat`. A repository that is missing or unreadable
        matches, because reading it raises the proper error.
        """
        if not wiki.repository or is_remote(wiki.source):
            return True
        if wiki.is_directory:
            return get_creation_stamp(wiki.source) in ("", wiki.repository)
        if _has_marker(f"{wiki.source}/.git", wiki.id):
            return True
        git_dir = _find_git_directory(wiki.source)
        if git_dir is None or _has_marker(git_dir, wiki.id):
            return True
        creation = get_creation_stamp(git_dir)
        marked, recorded = split_recorded(wiki.repository)
        if not creation or not recorded:
            return not marked
        return creation == recorded


def split_recorded(text: str) -> tuple[bool, str]:
    """Split a recorded identity: whether a marker was written, and the creation stamp."""
    marked = text == MARKED_WORD or text.startswith(f"{MARKED_WORD} ")
    return marked, text.removeprefix(MARKED_WORD).strip()


def _find_git_directory(path: str) -> str | None:
    """The common git directory of the repository at a path; None if there is none, or it is remote."""
    try:
        return None if is_remote(path) else str(find_repository(Path(path)).common_dir)
    except (WikiholtError, OSError, ValueError):
        return None


def _get_marker_path(git_dir: str, wiki_id: str) -> str:
    return f"{git_dir}/{MARKER_PREFIX}{wiki_id}"


def _has_marker(git_dir: str, wiki_id: str) -> bool:
    try:
        return stat.S_ISREG(os.lstat(_get_marker_path(git_dir, wiki_id)).st_mode)
    except (OSError, ValueError):
        return False


def _write_marker(path: str, git_dir: str, wiki_id: str) -> bool:
    """Write a marker if the git directory is directly in the repository, without following links.

    Otherwise the repository's owner could make Wikiholt write a file elsewhere.
    """
    if not wiki_id or git_dir not in (path, f"{path}/.git"):
        return False
    try:
        descriptors = [os.open(path, _DIRECTORY)]
    except (OSError, ValueError):
        return False
    try:
        if git_dir != path:
            descriptors.append(os.open(".git", _DIRECTORY | os.O_NOFOLLOW, dir_fd=descriptors[0]))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptors.append(os.open(f"{MARKER_PREFIX}{wiki_id}", flags, 0o644, dir_fd=descriptors[-1]))
        os.write(descriptors[-1], _MARKER_TEXT)
    except FileExistsError:
        return _has_marker(git_dir, wiki_id)
    except OSError:
        return False
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return True


def get_creation_stamp(directory: str) -> str:
    """The inode and birth time of a directory; empty if the file system has no birth time."""
    try:
        status = os.stat(directory)  # noqa: PTH116
    except OSError:
        return ""
    birth_time = getattr(status, "st_birthtime", None)
    nanoseconds = int(birth_time * 1_000_000_000) if birth_time else _get_birth_time_ns(directory)
    return f"{status.st_ino}-{nanoseconds}" if nanoseconds else ""


def _get_birth_time_ns(directory: str) -> int:
    """The birth time from statx, which Python has only since 3.15; 0 if unavailable."""
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
