"""The files of a checkout that git ignores: build outputs and installed packages are no pages of a wiki."""

from collections.abc import Callable
from pathlib import Path

from wikiholt.errors import WikiholtError
from wikiholt.git.objects import decode_file_name
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import find_repository

_COMMAND = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")


def list_ignored_files(root: Path, timeout: float) -> frozenset[str]:
    """The files and directories (with a slash at the end) below `root` that git ignores; none outside of a checkout."""
    for top in (root, *root.parents):
        try:
            git = GitRunner(find_repository(top), timeout)
            listed = git.run("-C", str(root), f"--work-tree={top}", *_COMMAND)
        except (WikiholtError, OSError):
            continue
        return frozenset(map(decode_file_name, listed.stdout.split(b"\0")[:-1])) if listed.status == 0 else frozenset()
    return frozenset()


def make_ignored_check(ignored: frozenset[str]) -> Callable[[str], bool]:
    """A function that tells whether a file is one of the ignored files or in one of the ignored directories."""
    directories = tuple(path for path in ignored if path.endswith("/"))
    return lambda file: file in ignored or file.startswith(directories)
