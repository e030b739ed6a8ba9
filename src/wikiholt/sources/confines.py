"""Whether a repository stays in the directory it was found in.

Who may write there could otherwise have another wiki's pages, or any repository of the machine, served as their own:
by a link, a `.git` file, a linked work tree, or objects that are borrowed from elsewhere.
"""

import os
import stat
from pathlib import Path

_PARTS = ("HEAD", "packed-refs", "refs", "objects", "objects/info", "objects/pack")
_BORROWED = "objects/info/alternates"
_MOST_BYTES = 4096
_MOST_STEPS = 5


def leads_out(place: Path, entry: Path, *, deep: bool = False) -> bool:
    """Whether the repository at `place` takes something from outside `entry`; `deep` looks at every object's file.

    The shallow form is a dozen looks at names, for thousands of repositories every few seconds.
    """
    return any(_leads_out(str(entry), path, _MOST_STEPS, deep) for path in (str(place), f"{place}/.git"))


def _leads_out(entry: str, path: str, steps: int, deep: bool) -> bool:
    kind = _kind(path)
    if kind == stat.S_IFLNK:
        if path != entry and not _within(path, entry):
            return True
        kind = _kind(path, follow=True)
    if not kind or steps == 0:
        return bool(kind)  # a chain that long is not honest
    if kind == stat.S_IFREG:
        target = os.path.join(os.path.dirname(path), _line(path).removeprefix("gitdir:").strip())  # noqa: PTH118, PTH120
        return not _within(target, entry) or _leads_out(entry, target, steps - 1, deep)
    common = f"{path}/commondir"
    if _kind(common):
        target = f"{path}/{_line(common)}"
        if not _within(target, entry) or _leads_out(entry, target, steps - 1, deep):
            return True
    return any(_is_link_out(f"{path}/{part}", entry) for part in _PARTS) or _borrows(entry, path, steps, deep)


def _borrows(entry: str, git_dir: str, steps: int, deep: bool) -> bool:
    """Whether objects come from elsewhere: by name in `alternates`, or one by one by links."""
    if deep and any(_holds_link_out(f"{git_dir}/{part}", entry) for part in ("objects", "objects/pack")):
        return True
    alternates = f"{git_dir}/{_BORROWED}"
    if not _kind(alternates):
        return False
    named = [line for line in _text(alternates).splitlines() if line and not line.startswith("#")]
    places = [os.path.normpath(os.path.join(git_dir, "objects", line)) for line in named]  # noqa: PTH118
    return any(
        not _within(place, entry) or _leads_out(entry, os.path.dirname(place), steps - 1, deep)  # noqa: PTH120
        for place in places
    )


def _holds_link_out(directory: str, entry: str) -> bool:
    try:
        with os.scandir(directory) as found:
            return any(each.is_symlink() and not _within(each.path, entry) for each in found)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_link_out(path: str, entry: str) -> bool:
    return _kind(path) == stat.S_IFLNK and not _within(path, entry)


def _line(path: str) -> str:
    return _text(path).strip()


def _text(path: str) -> str:
    """The beginning of a small file; nobody is waited for, should it be a pipe."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.fsdecode(os.read(descriptor, _MOST_BYTES))
    finally:
        os.close(descriptor)


def _within(path: str, directory: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _kind(path: str, *, follow: bool = False) -> int:
    try:
        return stat.S_IFMT(os.stat(path, follow_symlinks=follow).st_mode)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return 0
