"""Detects what a source is, and when another directory or repository has taken the place of a wiki's own.

Nothing is written into a directory of pages: it is identified by its inode and birth time alone.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.slugs import propose_slug
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiholtError
from wikiholt.git.remote_url import is_remote
from wikiholt.git.repository import find_repositories, find_repository
from wikiholt.git.repository_identity import GitRepositoryIdentities, get_creation_stamp
from wikiholt.text.page_names import is_page_file


class SourceIdentities(GitRepositoryIdentities):
    """Identifies the repositories and directories of wikis. Safe to use from many threads."""

    def identify(self, source: str) -> str:
        return super().identify(source) or ("" if is_remote(source) else get_creation_stamp(source))

    def bind(self, wiki: Wiki) -> str:
        return get_creation_stamp(wiki.source) if wiki.is_directory else super().bind(wiki)

    def release(self, wiki: Wiki) -> None:
        if not wiki.is_directory:
            super().release(wiki)

    def matches(self, wiki: Wiki) -> bool:
        """Whether the recorded directory or repository is still at the wiki's path; True if that is unknown."""
        if not wiki.is_directory:
            return super().matches(wiki)
        creation = get_creation_stamp(wiki.source)
        return not wiki.repository or not creation or creation == wiki.repository


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
