"""The files of a checkout that git ignores: build outputs and installed packages are no pages of a wiki.

A repository that ignores the entire directory (a vault in a home directory that is a repository) does not count.
"""

import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from wikiholt.errors import WikiholtError
from wikiholt.git.process import GitRunner
from wikiholt.git.repository import find_repository

_LIST_COMMAND = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")

_PLAIN_NAMES = {"GIT_LITERAL_PATHSPECS": "0"}
"""`check-ignore` accepts no literal names; those that begin with `./` have no special meaning."""


def list_ignored_files(root: Path, timeout: float) -> frozenset[str]:
    """The files and directories (with a slash at the end) below `root` that git ignores; none outside of a checkout."""
    ignored = _run_git(root, timeout, *_LIST_COMMAND)
    return frozenset() if "./" in ignored else frozenset(ignored)


def is_ignored(file: str, ignored: frozenset[str]) -> bool:
    """Whether a file, or a directory that contains it, is among the ignored ones."""
    return file in ignored or any(f"{parent}/" in ignored for parent in PurePosixPath(file).parents)


def find_ignored_names(root: Path, files: Sequence[str], timeout: float) -> list[str]:
    """Those of the files, which need not exist, that git would ignore."""
    ignored = _run_git(root, timeout, "check-ignore", "-z", "--stdin", names=[".", *(f"./{file}" for file in files)])
    return [] if "." in ignored else [name.removeprefix("./") for name in ignored]


def _run_git(root: Path, timeout: float, *command: str, names: Sequence[str] = ()) -> list[str]:
    """The paths that git prints in the checkout that contains `root`; none if there is no checkout."""
    for top in (root, *root.parents):
        try:
            git = GitRunner(find_repository(top), timeout)
            data = b"".join(os.fsencode(name) + b"\0" for name in names)
            listed = git.run("-C", str(root), f"--work-tree={top}", *command, input_data=data, environment=_PLAIN_NAMES)
        except (WikiholtError, OSError):
            continue
        return [os.fsdecode(path) for path in listed.stdout.split(b"\0")[:-1]] if listed.status == 0 else []
    return []
