"""What a search registers in a folder that belongs to no wiki: the folder, or the documents that it is part of."""

from __future__ import annotations

import os
import re
from pathlib import Path

_SITE_FILES = ("mkdocs.yml", "mkdocs.yaml")
_DOCS_SETTING = re.compile(r"""^docs_dir:[ \t]*(["']?)(?P<path>[^"'#\n]+?)\1[ \t]*(?:#.*)?$""", re.MULTILINE)
_DEFAULT_DOCS = "docs"
_MAX_SITE_FILE_BYTES = 1 << 20


def find_scope(folder: Path, repository: Path | None) -> Path:
    """The folder, or the Obsidian vault or the documents of an MkDocs site that contain it.

    The root of a repository means all of it.
    """
    for directory in (folder, *folder.parents):
        if folder == repository or get_home().is_relative_to(directory):
            break
        docs = directory if (directory / ".obsidian").is_dir() else _read_docs_directory(directory)
        if docs is not None and folder.is_relative_to(docs):
            return docs
        if directory == repository:
            break
    return folder


def find_repository_root(folder: Path) -> Path | None:
    """The root of the git repository that contains the folder, or None."""
    return next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)


def get_home() -> Path:
    """The home directory with links resolved."""
    return Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises without a home


def is_home_or_above(folder: Path) -> bool:
    """Whether the folder, or the repository around it, is or contains the home directory."""
    return get_home().is_relative_to(find_repository_root(folder) or folder)


def _read_docs_directory(directory: Path) -> Path | None:
    """The documents of the MkDocs site whose settings are in this directory, if any."""
    for name in _SITE_FILES:
        try:
            with (directory / name).open(encoding="utf-8", errors="replace") as file:
                text = file.read(_MAX_SITE_FILE_BYTES)
        except OSError:
            continue
        found = _DOCS_SETTING.search(text)
        docs = Path(os.path.realpath(directory / (found["path"] if found else _DEFAULT_DOCS)))
        return docs if docs.is_relative_to(directory) else None
    return None
