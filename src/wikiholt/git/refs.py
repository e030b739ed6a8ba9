"""The commit at HEAD, read from the files that hold it: each search asks, so it must cost microseconds.

What these files do not plainly say (other ways to store refs, damage, a branch without commits) git itself is asked.
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
"""Half a million packed branches; a longer file is no list of branches, and git is asked."""

PackedRefsStamp = tuple[int, int, int]


class HeadReader:
    """Reads HEAD cheaply; remembers the packed refs for as long as their file stays the same. Safe in threads."""

    def __init__(self) -> None:
        self._packed: tuple[Path, PackedRefsStamp, dict[bytes, bytes]] | None = None

    def read_head(self, location: RepositoryLocation) -> str | None:
        """The commit at HEAD, or None when the files alone do not tell."""
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
            found = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise make_unreadable_error(path, error) from error
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        known = self._packed
        if known is None or known[:2] != (path, stamp):
            known = self._packed = (path, stamp, _parse_packed_refs(_read_small_file(path) or b""))
        return known[2].get(name)


def resolve_head(git: GitRunner, location: RepositoryLocation) -> str:
    """The commit at HEAD as git resolves it; raises NoCommits when its branch has none, SourceBroken on damage."""
    resolved = git.run("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}")
    if resolved.status == 0:
        return resolved.stdout.decode().strip()
    symbolic = git.run("symbolic-ref", "--quiet", "HEAD")
    branch = symbolic.stdout.strip()
    if symbolic.status == 0 and not os.path.lexists(location.common_dir / os.fsdecode(branch)):
        raise _make_unborn_error(git, branch)
    raise SourceCorrupt(
        f"HEAD of the repository at {location.git_dir} leads nowhere: {resolved.stderr or 'not a commit'}",
        hint="A crash can leave an empty or torn file behind; look at it with `git fsck` and `git reflog`.",
    )


def _make_unborn_error(git: GitRunner, branch: bytes) -> SourceError:
    name = branch.decode("utf-8", "replace").removeprefix("refs/heads/")
    others = git.run("for-each-ref", "--format=%(refname:short)", "--count=5", "refs/heads")
    listed = others.stdout.decode("utf-8", "replace").split()
    if listed:
        hint = (
            f"Its branches are {', '.join(listed)}; point HEAD at one: `git symbolic-ref HEAD refs/heads/{listed[0]}`."
        )
    else:
        hint = "Commit a page first."
    return NoCommits(f"The repository has no commits on its branch {name}.", hint=hint)


def _read_small_file(path: Path) -> bytes | None:
    """A small file's content without the space around it; None when there is no such file."""
    try:
        # Whoever owns a repository may put a pipe in a file's place: nobody waits for its other end.
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
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # a branch `a/b` makes `a` a directory
        return None
    except OSError as error:
        raise make_unreadable_error(path, error) from error


def _parse_packed_refs(content: bytes) -> dict[bytes, bytes]:
    found = {}
    for line in content.splitlines():
        commit, _, name = line.partition(b" ")
        if _COMMIT_ID_PATTERN.fullmatch(commit):
            found[name] = commit
    return found
