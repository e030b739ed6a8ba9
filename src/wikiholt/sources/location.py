"""Where a repository's files lie: a work tree, a bare repository, a linked work tree, a `.git` file."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import InvalidSource, SourceBroken, SourceError, SourceMissing

_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Location:
    """A repository on disk: `git_dir` holds HEAD, `common_dir` holds objects and branches (often the same)."""

    git_dir: Path
    common_dir: Path


def locate(path: Path) -> Location:
    """Find the repository that lies exactly at `path`; a repository further up is never taken for it."""
    try:
        dot_git = path / ".git"
        kind = _kind(dot_git)
        if kind == stat.S_IFDIR and _kind(dot_git / "HEAD") == stat.S_IFREG:
            return _location(dot_git)
        if kind == stat.S_IFREG:
            return _location(_follow(dot_git))
        if _is_git_dir(path):
            return _location(path)
    except OSError as error:
        raise unreadable(path, error) from error
    raise _absence(path, dot_git)


def unreadable(path: Path, error: OSError) -> SourceError:
    """The error to raise when a file of the repository cannot be read."""
    return SourceBroken(
        f"The repository at {path} cannot be read: {error.strerror or error}.",
        hint="Check that the user who runs wikiholt may read every file of the repository.",
    )


def _location(git_dir: Path) -> Location:
    pointer = git_dir / "commondir"
    if not _kind(pointer):
        return Location(git_dir, git_dir)
    target = os.fsdecode(_beginning(pointer).strip())
    return Location(git_dir, Path(os.path.normpath(git_dir / target)))


def _follow(dot_git: Path) -> Path:
    content = _beginning(dot_git)
    git_dir = Path(os.path.normpath(dot_git.parent / os.fsdecode(content.removeprefix(b"gitdir:").strip())))
    if content.startswith(b"gitdir:") and _kind(git_dir / "HEAD") == stat.S_IFREG:
        return git_dir
    raise SourceBroken(
        f"{dot_git} does not lead to a repository.",
        hint="A linked work tree or submodule was moved; run `git worktree repair` in its main repository.",
    )


def _beginning(pointer: Path) -> bytes:
    """What a file of one line says; should it be a pipe, its other end is not waited for."""
    descriptor = os.open(pointer, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MOST_BYTES)
    finally:
        os.close(descriptor)


def _is_git_dir(path: Path) -> bool:
    # A linked work tree's own directory has no objects of its own.
    linked = _kind(path / "commondir") == stat.S_IFREG
    return _kind(path / "HEAD") == stat.S_IFREG and (linked or all(_kind(path / name) for name in ("objects", "refs")))


def _kind(path: Path) -> int:
    """Whether a path is a file or a directory; 0 when nothing is there. Not being allowed to look is an error."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _absence(path: Path, dot_git: Path) -> SourceError | InvalidSource:
    if not path.exists():
        return SourceMissing(f"There is nothing at {path}.", hint="Check the path, or that its disk is mounted.")
    if not path.is_dir():
        return InvalidSource(f"{path} is a file, not a git repository.", hint="Name the directory of the repository.")
    if dot_git.exists():
        return SourceBroken(
            f"The repository at {path} has no HEAD.",
            hint="It is damaged: restore it from a clone or a backup, or look at it with `git fsck`.",
        )
    for parent in path.parents:
        if (parent / ".git").exists():
            return InvalidSource(
                f"{path} is a directory inside a git repository, not a repository itself.",
                hint=f"Use {parent} as the source, with subdirectory={path.relative_to(parent).as_posix()}.",
            )
    return SourceMissing(
        f"{path} is not a git repository.", hint=f"To make it one: `git -C {path} init`, then commit the pages."
    )
