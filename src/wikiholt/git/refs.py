"""Reads the commit at HEAD from the ref files: every search needs it, so it must take microseconds.

Where the files are not conclusive (other ref formats, damage, a branch without commits), git resolves HEAD.
"""

import os
import re
from pathlib import Path

from wikiholt.errors import NoCommits, SourceCorrupt, SourceError
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import RepositoryLocation, make_unreadable_error

_COMMIT_ID_PATTERN = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_BRANCH_PATTERN = re.compile(rb"refs/heads/[^\x00-\x20\x7f~^:?*\[\\]+")
_MAX_SYMREF_HOPS = 5
_READ_BLOCK_BYTES = 1 << 16
_MAX_PACKED_REFS_BYTES = 64 * 1024 * 1024
"""About half a million packed refs. A longer file is not read; git resolves the ref."""

PackedRefsStamp = tuple[int, int, int]


class HeadReader:
    """Reads HEAD from files and caches the packed refs until their file changes. Safe to use from many threads."""

    def __init__(self) -> None:
        self._packed: tuple[Path, PackedRefsStamp, dict[bytes, bytes]] | None = None

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
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise make_unreadable_error(path, error) from error
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        packed = self._packed
        if packed is None or packed[:2] != (path, stamp):
            packed = self._packed = (path, stamp, _parse_packed_refs(_read_small_file(path) or b""))
        return packed[2].get(name)


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
    hint = "Commit a page first."
    if branches:
        command = f"git symbolic-ref HEAD refs/heads/{branches[0]}"
        hint = f"Its branches are {', '.join(branches)}; point HEAD at one: `{command}`."
    return NoCommits(f"The repository has no commits on its branch {name}.", hint=hint)


def _read_small_file(path: Path) -> bytes | None:
    """The stripped content of a small file; None when there is no such file."""
    try:
        # The repository's owner may replace a file by a named pipe: do not block on it.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, _READ_BLOCK_BYTES)
            while (
                content and len(content) < _MAX_PACKED_REFS_BYTES and (more := os.read(descriptor, _READ_BLOCK_BYTES))
            ):
                content += more
            return content.strip()
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # with a branch `a/b`, `a` is a directory
        return None
    except OSError as error:
        raise make_unreadable_error(path, error) from error


def _parse_packed_refs(content: bytes) -> dict[bytes, bytes]:
    refs = {}
    for line in content.splitlines():
        commit, _, name = line.partition(b" ")
        if _COMMIT_ID_PATTERN.fullmatch(commit):
            refs[name] = commit
    return refs
