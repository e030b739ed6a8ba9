"""Tells with a few system calls whether a repository and its HEAD are as they were at the last complete check.

The files that name the commit are read each time: that costs little more than their `stat`, and needs no trust in
timestamps. Everything else that the complete check looks at is compared by stamp.
"""

import os

from wikiholt.git.file_stamps import compute_stamp
from wikiholt.git.repository import read_start

_STAMPED_NAMES = ("", "/packed-refs", "/objects", "/objects/info", "/objects/pack")
"""Below the git directory. A directory's stamp changes when an entry is created, removed or replaced."""
_MAX_REF_BYTES = 4096


def list_stamped_paths(path: str, git_dir: str) -> list[str]:
    """The paths whose stamps a probe compares."""
    paths = [git_dir + name for name in _STAMPED_NAMES]
    return paths if path == git_dir else [*paths, path]


class GitHeadProbe:
    """A repository at rest. Small, because a service has one per wiki."""

    __slots__ = ("_branch", "_commit", "_git_dir", "_head", "_is_packed", "_path", "_stamp")

    def __init__(self, path: str, git_dir: str, stamp: bytes, commit: str) -> None:
        """`stamp` was taken before the repository was checked and `commit` was read."""
        self._path = path
        self._git_dir = git_dir
        self._stamp = stamp
        self._commit = commit
        self._head = _read_start(f"{git_dir}/HEAD") or b""
        self._branch = os.fsdecode(self._head.removeprefix(b"ref:").strip()) if self._head.startswith(b"ref:") else ""
        self._is_packed = bool(self._branch) and _read_start(f"{git_dir}/{self._branch}") is None

    def read_head(self) -> str | None:
        """The commit at HEAD; None if anything has changed or is unusual, so that a complete check is needed."""
        content = _read_start(f"{self._git_dir}/HEAD")
        if not content or content != self._head:
            return None
        if self._branch:
            content = _read_start(f"{self._git_dir}/{self._branch}")
        if content != (None if self._is_packed else self._commit.encode()):
            return None
        stamp = compute_stamp(list_stamped_paths(self._path, self._git_dir))
        return self._commit if stamp == self._stamp else None


def _read_start(file: str) -> bytes | None:
    """The stripped start of a file; None if it cannot be read."""
    try:
        return read_start(file, _MAX_REF_BYTES).strip()
    except OSError:
        return None
