"""Where a repository's files lie: a work tree, a bare repository, a linked work tree, a `.git` file."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import InvalidSource, SourceCorrupt, SourceError, SourceMissing

_MAX_GIT_FILE_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class RepositoryLocation:
    """A repository on disk: `git_dir` holds HEAD, `common_dir` holds objects and branches (often the same)."""

    git_dir: Path
    common_dir: Path


def find_repository(path: Path) -> RepositoryLocation:
    """Find the repository that lies exactly at `path`; a repository further up is never taken for it."""
    try:
        dot_git = path / ".git"
        kind = _get_path_type(dot_git)
        if kind == stat.S_IFDIR and _get_path_type(dot_git / "HEAD") == stat.S_IFREG:
            return _build_location(dot_git)
        if kind == stat.S_IFREG:
            return _build_location(_resolve_git_file(dot_git))
        if _is_git_dir(path):
            return _build_location(path)
    except OSError as error:
        raise make_unreadable_error(path, error) from error
    raise _make_missing_error(path, dot_git)


def make_unreadable_error(path: Path, error: OSError) -> SourceError:
    """The error to raise when a file of the repository cannot be read."""
    return SourceCorrupt(
        f"The repository at {path} cannot be read: {error.strerror or error}.",
        hint="Check that the user who runs wikiholt may read every file of the repository.",
    )


def _build_location(git_dir: Path) -> RepositoryLocation:
    pointer = git_dir / "commondir"
    if not _get_path_type(pointer):
        return RepositoryLocation(git_dir, git_dir)
    target = os.fsdecode(_read_start(pointer).strip())
    return RepositoryLocation(git_dir, Path(os.path.normpath(git_dir / target)))


def _resolve_git_file(dot_git: Path) -> Path:
    content = _read_start(dot_git)
    git_dir = Path(os.path.normpath(dot_git.parent / os.fsdecode(content.removeprefix(b"gitdir:").strip())))
    if content.startswith(b"gitdir:") and _get_path_type(git_dir / "HEAD") == stat.S_IFREG:
        return git_dir
    raise SourceCorrupt(
        f"{dot_git} does not lead to a repository.",
        hint="A linked work tree or submodule was moved; run `git worktree repair` in its main repository.",
    )


def _read_start(pointer: Path) -> bytes:
    """What a file of one line says; should it be a pipe, its other end is not waited for."""
    descriptor = os.open(pointer, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(descriptor, _MAX_GIT_FILE_BYTES)
    finally:
        os.close(descriptor)


def _is_git_dir(path: Path) -> bool:
    # A linked work tree's own directory has no objects of its own.
    linked = _get_path_type(path / "commondir") == stat.S_IFREG
    return _get_path_type(path / "HEAD") == stat.S_IFREG and (linked or all(_get_path_type(path / name) for name in ("objects", "refs")))


def _get_path_type(path: Path) -> int:
    """Whether a path is a file or a directory; 0 when nothing is there. Not being allowed to look is an error."""
    try:
        return stat.S_IFMT(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _make_missing_error(path: Path, dot_git: Path) -> SourceError | InvalidSource:
    if not path.exists():
        return SourceMissing(f"There is nothing at {path}.", hint="Check the path, or that its disk is mounted.")
    if not path.is_dir():
        return InvalidSource(f"{path} is a file, not a git repository.", hint="Name the directory of the repository.")
    if dot_git.exists():
        return SourceCorrupt(
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
