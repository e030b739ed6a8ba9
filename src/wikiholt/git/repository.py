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
    return _get_path_type(path / "HEAD") == stat.S_IFREG and (
        linked or all(_get_path_type(path / name) for name in ("objects", "refs"))
    )


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


# Whether a repository stays in the directory it was found in. Who may write there could otherwise have another wiki's
# pages, or any repository of the machine, served as their own: by a link, a `.git` file, a linked work tree, or
# objects that are borrowed from elsewhere.


_CHECKED_PATHS = ("HEAD", "packed-refs", "refs", "objects", "objects/info", "objects/pack")
_ALTERNATES_FILE = "objects/info/alternates"
_MAX_ALTERNATES_BYTES = 4096
_MAX_LINK_STEPS = 5


def has_outside_references(repository: Path, root: Path, *, check_objects: bool = False) -> bool:
    """Whether the repository at `place` takes something from outside `entry`; `deep` looks at every object's file.

    The shallow form is a dozen looks at names, for thousands of repositories every few seconds.
    """
    return any(
        _is_path_outside(str(root), path, _MAX_LINK_STEPS, check_objects)
        for path in (str(repository), f"{repository}/.git")
    )


def _is_path_outside(root: str, path: str, steps: int, check_objects: bool) -> bool:
    kind = _get_file_type(path)
    if kind == stat.S_IFLNK:
        if path != root and not _is_within(path, root):
            return True
        kind = _get_file_type(path, follow=True)
    if not kind or steps == 0:
        return bool(kind)  # a chain that long is not honest
    if kind == stat.S_IFREG:
        target = os.path.join(os.path.dirname(path), _read_line(path).removeprefix("gitdir:").strip())  # noqa: PTH118, PTH120
        return not _is_within(target, root) or _is_path_outside(root, target, steps - 1, check_objects)
    common = f"{path}/commondir"
    if _get_file_type(common):
        target = f"{path}/{_read_line(common)}"
        if not _is_within(target, root) or _is_path_outside(root, target, steps - 1, check_objects):
            return True
    return any(_is_outside_link(f"{path}/{part}", root) for part in _CHECKED_PATHS) or _has_outside_objects(
        root, path, steps, check_objects
    )


def _has_outside_objects(root: str, git_dir: str, steps: int, check_objects: bool) -> bool:
    """Whether objects come from elsewhere: by name in `alternates`, or one by one by links."""
    if check_objects and any(_has_outside_link(f"{git_dir}/{part}", root) for part in ("objects", "objects/pack")):
        return True
    alternates = f"{git_dir}/{_ALTERNATES_FILE}"
    if not _get_file_type(alternates):
        return False
    named = [line for line in _read_text(alternates).splitlines() if line and not line.startswith("#")]
    places = [os.path.normpath(os.path.join(git_dir, "objects", line)) for line in named]  # noqa: PTH118
    return any(
        not _is_within(place, root) or _is_path_outside(root, os.path.dirname(place), steps - 1, check_objects)  # noqa: PTH120
        for place in places
    )


def _has_outside_link(directory: str, root: str) -> bool:
    try:
        with os.scandir(directory) as found:
            return any(each.is_symlink() and not _is_within(each.path, root) for each in found)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_outside_link(path: str, root: str) -> bool:
    return _get_file_type(path) == stat.S_IFLNK and not _is_within(path, root)


def _read_line(path: str) -> str:
    return _read_text(path).strip()


def _read_text(path: str) -> str:
    """The beginning of a small file; nobody is waited for, should it be a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(descriptor, _MAX_ALTERNATES_BYTES))
    finally:
        os.close(descriptor)


def _is_within(path: str, directory: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _get_file_type(path: str, *, follow: bool = False) -> int:
    try:
        return stat.S_IFMT(os.stat(path, follow_symlinks=follow).st_mode)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return 0
