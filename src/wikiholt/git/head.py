"""Reads HEAD from the ref files: every search needs it, so it must take microseconds.

Where the files are not conclusive (other ref formats, damage, a branch without commits), git resolves it.
"""

import os
import re
import time
from pathlib import Path

from wikiholt.errors import NoCommits, SourceCorrupt, SourceError
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import (
    TIMESTAMP_GRANULARITY_NS,
    RepositoryLocation,
    compute_stamp,
    make_unreadable_error,
    read_start,
)

_COMMIT_ID_PATTERN = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BRANCH_PATTERN = re.compile(rb"refs/heads/[^\x00-\x20\x7f~^:?*\[\\]+")
_MAX_SYMREF_HOPS = 5
_MAX_REF_BYTES = 4096
_MAX_PACKED_REFS_BYTES = 64 * 1024 * 1024
"""About half a million packed refs. In a longer file git finds the ref."""

PackedRefsStamp = tuple[int, int, int, int]


class HeadReader:
    """Reads HEAD from files and caches the packed refs until their file changes. Safe to use from many threads."""

    def __init__(self) -> None:
        self._packed: tuple[Path, PackedRefsStamp, bytes, int, bytes | None] | None = None

    def read_head(self, location: RepositoryLocation) -> str | None:
        """The commit at HEAD, or None when the files are not conclusive."""
        value = _read_small_file(location.git_dir / "HEAD")
        for _ in range(_MAX_SYMREF_HOPS):
            if value is None or _COMMIT_ID_PATTERN.fullmatch(value):
                return value.decode() if value else None
            name = value.removeprefix(b"ref:").strip()
            if not value.startswith(b"ref:") or b".." in name or not _BRANCH_PATTERN.fullmatch(name):
                return None
            # Loose before packed: git writes the packed file before it removes the loose one.
            loose = _read_small_file(location.common_dir / os.fsdecode(name))
            value = loose if loose is not None else self._find_packed_ref(location, name)
        return None

    def _find_packed_ref(self, location: RepositoryLocation, name: bytes) -> bytes | None:
        path = location.common_dir / "packed-refs"
        now_ns = time.time_ns()
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise make_unreadable_error(path, error) from error
        stamp = (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino)
        packed = self._packed
        # A file that was as new when it was read may have changed once more at the same time.
        if packed is None or packed[:3] != (path, stamp, name) or max(stamp[:2]) > packed[3] - TIMESTAMP_GRANULARITY_NS:
            content = _read_small_file(path, _MAX_PACKED_REFS_BYTES) or b""
            packed = self._packed = (path, stamp, name, now_ns, _find_in_packed_refs(content, name))
        return packed[4]


def resolve_head(git: GitRunner, location: RepositoryLocation) -> str:
    """The commit at HEAD as git resolves it. Raises NoCommits if the branch has none, SourceCorrupt on damage."""
    resolved = git.run("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}")
    if resolved.status == 0:
        return resolved.stdout.decode().strip()
    symbolic = git.run("symbolic-ref", "--quiet", "HEAD")
    branch = symbolic.stdout.strip()
    if symbolic.status == 0 and not os.path.lexists(location.common_dir / os.fsdecode(branch)):
        raise _make_unborn_error(git, branch)
    raise SourceCorrupt(
        f"HEAD of the repository at {location.git_dir} cannot be resolved: {resolved.stderr or 'not a commit'}",
        hint="A crash can leave an empty or torn file; check with `git fsck` and `git reflog`.",
    )


def _make_unborn_error(git: GitRunner, branch: bytes) -> SourceError:
    name = branch.decode("utf-8", "replace").removeprefix("refs/heads/")
    others = git.run("for-each-ref", "--format=%(refname:short)", "--count=5", "refs/heads")
    branches = others.stdout.decode("utf-8", "replace").split()
    hint = "Commit or import a page first."
    if branches:
        command = f"git symbolic-ref HEAD refs/heads/{branches[0]}"
        hint = f"Its branches are {', '.join(branches)}; point HEAD at one: `{command}`."
    return NoCommits(f"The repository has no commits on its branch {name}.", hint=hint)


def _read_small_file(path: Path, max_bytes: int = _MAX_REF_BYTES) -> bytes | None:
    """The stripped start of a file; None when there is no such file."""
    try:
        return read_start(path, max_bytes).strip()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # with a branch `a/b`, `a` is a directory
        return None
    except OSError as error:
        raise make_unreadable_error(path, error) from error


def _find_in_packed_refs(content: bytes, name: bytes) -> bytes | None:
    """The commit of a ref. Searches instead of parsing: there may be millions of others."""
    end = (content + b"\n").find(b" " + name + b"\n")
    commit = content[content.rfind(b"\n", 0, end) + 1 : end] if end >= 0 else b""
    return commit if _COMMIT_ID_PATTERN.fullmatch(commit) else None


# A probe tells with a few system calls whether a repository and its HEAD are as they were at the last complete check.
# The files that name the commit are read each time: that costs little more than their `stat`, and needs no trust in
# timestamps. Everything else that the complete check looks at is compared by stamp.

_STAMPED_NAMES = ("", "/packed-refs", "/objects", "/objects/info", "/objects/pack")
"""Below the git directory. A directory's stamp changes when an entry is created, removed or replaced."""


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
