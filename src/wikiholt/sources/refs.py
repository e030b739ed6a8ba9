"""The commit at HEAD, read from the files that hold it: each search asks, so it must cost microseconds.

What these files do not plainly say (other ways to store refs, damage, a branch without commits) git itself is asked.
"""

import os
import re
from pathlib import Path

from wikiholt.errors import NoCommits, SourceBroken, SourceError
from wikiholt.sources.command import Git
from wikiholt.sources.location import Location, unreadable

_COMMIT_ID = re.compile(rb"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_PLAIN_BRANCH = re.compile(rb"refs/heads/[^\x00-\x20\x7f~^:?*\[\\]+")
_MAX_HOPS = 5
_BLOCK = 1 << 16
_MOST_BYTES = 64 * 1024 * 1024
"""Half a million packed branches; a longer file is no list of branches, and git is asked."""

PackedStamp = tuple[int, int, int]


class Refs:
    """Reads HEAD cheaply; remembers the packed refs for as long as their file stays the same. Safe in threads."""

    def __init__(self) -> None:
        self._packed: tuple[Path, PackedStamp, dict[bytes, bytes]] | None = None

    def head(self, location: Location) -> str | None:
        """The commit at HEAD, or None when the files alone do not tell."""
        value = _content(location.git_dir / "HEAD")
        for _ in range(_MAX_HOPS):
            if value is None or _COMMIT_ID.fullmatch(value):
                return value.decode() if value else None
            name = value.removeprefix(b"ref:").strip()
            if not value.startswith(b"ref:") or b".." in name or not _PLAIN_BRANCH.fullmatch(name):
                return None
            # Loose before packed: git writes the packed file before it removes the loose one.
            loose = _content(location.common_dir / os.fsdecode(name))
            value = loose if loose is not None else self._packed_ref(location, name)
        return None

    def _packed_ref(self, location: Location, name: bytes) -> bytes | None:
        path = location.common_dir / "packed-refs"
        try:
            found = path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(path, error) from error
        stamp = (found.st_mtime_ns, found.st_size, found.st_ino)
        known = self._packed
        if known is None or known[:2] != (path, stamp):
            known = self._packed = (path, stamp, _parse_packed(_content(path) or b""))
        return known[2].get(name)


def ask_head(git: Git, location: Location) -> str:
    """The commit at HEAD as git resolves it; raises NoCommits when its branch has none, SourceBroken on damage."""
    resolved = git.run("rev-parse", "--verify", "--end-of-options", "HEAD^{commit}")
    if resolved.status == 0:
        return resolved.out.decode().strip()
    symbolic = git.run("symbolic-ref", "--quiet", "HEAD")
    branch = symbolic.out.strip()
    if symbolic.status == 0 and not os.path.lexists(location.common_dir / os.fsdecode(branch)):
        raise _unborn(git, branch)
    raise SourceBroken(
        f"HEAD of the repository at {location.git_dir} leads nowhere: {resolved.err or 'not a commit'}",
        hint="A crash can leave an empty or torn file behind; look at it with `git fsck` and `git reflog`.",
    )


def _unborn(git: Git, branch: bytes) -> SourceError:
    name = branch.decode("utf-8", "replace").removeprefix("refs/heads/")
    others = git.run("for-each-ref", "--format=%(refname:short)", "--count=5", "refs/heads")
    listed = others.out.decode("utf-8", "replace").split()
    if listed:
        hint = (
            f"Its branches are {', '.join(listed)}; point HEAD at one: `git symbolic-ref HEAD refs/heads/{listed[0]}`."
        )
    else:
        hint = "Commit a page first."
    return NoCommits(f"The repository has no commits on its branch {name}.", hint=hint)


def _content(path: Path) -> bytes | None:
    """A small file's content without the space around it; None when there is no such file."""
    try:
        # Whoever owns a repository may put a pipe in a file's place: nobody waits for its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            content = os.read(descriptor, _BLOCK)
            while content and len(content) < _MOST_BYTES and (more := os.read(descriptor, _BLOCK)):
                content += more
            return content.strip()
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # a branch `a/b` makes `a` a directory
        return None
    except OSError as error:
        raise unreadable(path, error) from error


def _parse_packed(content: bytes) -> dict[bytes, bytes]:
    found = {}
    for line in content.splitlines():
        commit, _, name = line.partition(b" ")
        if _COMMIT_ID.fullmatch(commit):
            found[name] = commit
    return found
