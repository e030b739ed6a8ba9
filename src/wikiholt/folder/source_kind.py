"""Detects what a source is: a git repository, or a directory of pages."""

import os
from collections.abc import Mapping
from pathlib import Path

from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.slugs import propose_slug
from wikiholt.errors import WikiholtError
from wikiholt.git.remote_url import is_remote
from wikiholt.git.repository import find_repositories, find_repository
from wikiholt.text.page_names import is_page_file


def detect_source_kind(source: str, settings: Mapping[str, str]) -> Mapping[str, str]:
    """The settings of a new wiki, with its kind if the source is a directory outside of any repository."""
    path = Path(source)
    if "kind" in settings or is_remote(source) or not path.is_dir():
        return settings
    try:
        find_repository(path)
    except WikiholtError:
        is_inside = any(os.path.lexists(parent / ".git") for parent in (path, *path.parents))
        return settings if is_inside else {**settings, "kind": "directory"}
    return settings


def find_wiki_at(path: Path) -> DiscoveredRepository | None:
    """The wiki that a directory itself is: a repository, or a directory of pages; None if it contains repositories."""
    slug = propose_slug(path.name.removesuffix(".git"))
    try:
        find_repository(path)
    except WikiholtError:
        is_directory_of_pages = next(find_repositories(path), None) is None and _contains_page(path)
        return DiscoveredRepository(slug, path, kind="directory") if is_directory_of_pages else None
    return DiscoveredRepository(slug, path)


def _contains_page(path: Path) -> bool:
    for _, directories, files in os.walk(path):
        directories[:] = [name for name in directories if not name.startswith(".") and name != "node_modules"]
        if any(map(is_page_file, files)):
            return True
    return False
