"""Whether a repository stays in the directory it was found in.

Who may write there could otherwise have another wiki's pages, or any repository of the machine, served as their own:
by a link, a `.git` file, a linked work tree, or objects that are borrowed from elsewhere.
"""

import os
import stat
from pathlib import Path

_CHECKED_PATHS = ("HEAD", "packed-refs", "refs", "objects", "objects/info", "objects/pack")
_ALTERNATES_FILE = "objects/info/alternates"
_MAX_ALTERNATES_BYTES = 4096
_MAX_LINK_STEPS = 5


def has_outside_references(repository: Path, root: Path, *, check_objects: bool = False) -> bool:
    """Whether the repository at `place` takes something from outside `entry`; `deep` looks at every object's file.

    The shallow form is a dozen looks at names, for thousands of repositories every few seconds.
    """
    return any(_is_path_outside(str(root), path, _MAX_LINK_STEPS, check_objects) for path in (str(repository), f"{repository}/.git"))


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
    return any(_is_outside_link(f"{path}/{part}", root) for part in _CHECKED_PATHS) or _has_outside_objects(root, path, steps, check_objects)


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
