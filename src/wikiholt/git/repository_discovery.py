"""Finds the repositories in a directory of wikis: `slug/`, `slug/repo`, `slug/repository`, `slug.git`.

A directory whose name is not a slug gets one like its name: `robots` is the wiki `robots-pages`.

Discovery takes a few `stat` calls per entry and starts no git process. A repository must not reference anything
outside its own directory; see `has_outside_references`.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from wikiholt.domain.git import DiscoveredRepository
from wikiholt.errors import InvalidSlug
from wikiholt.git.repository import get_file_type, has_outside_references, is_within
from wikiholt.wikis.slugs import propose_free_slug, validate_slug

_REPOSITORY_SUBDIRECTORIES = ("", "repo", "repository")


def find_repositories(root: Path) -> Iterator[DiscoveredRepository]:
    """Every repository below the directory, by slug; one that cannot be served comes with the reason."""
    try:
        top = root.resolve()
        with os.scandir(top) as entries:
            names = {entry.name: entry.is_symlink() for entry in entries if not entry.name.startswith(".")}
    except OSError as error:
        yield DiscoveredRepository("", root, f"the directory cannot be read ({error.strerror})")
        return
    # Names that are slugs come first, so that no other name takes theirs; then `name` before `name.git`.
    claimed: dict[str, Path] = {}
    slugs = {name: _choose_slug(name.removesuffix(".git")) for name in names}
    for name in sorted(names, key=lambda name: (slugs[name] != name.removesuffix(".git"), slugs[name], name)):
        for repository in _find_in_entry(top, name, slugs[name], is_link=names[name]):
            slug, path = repository.slug, repository.path
            if not repository.reason and (winner := claimed.setdefault(slug, path)) != path:
                yield DiscoveredRepository(slug, path, f"{winner.relative_to(top)} is already the wiki {slug}")
            else:
                yield repository


def _choose_slug(name: str) -> str:
    """The name, or a slug like it if the name cannot be one."""
    try:
        return validate_slug(name)
    except InvalidSlug:
        return propose_free_slug(name, ())


def _find_in_entry(directory: Path, name: str, slug: str, *, is_link: bool) -> Iterator[DiscoveredRepository]:
    """The repositories of one directory entry: the entry itself, or one or two inside it."""
    entry = directory / name
    try:
        if is_link and not is_within(entry, directory):
            if _is_repository(entry):
                yield DiscoveredRepository(slug, entry, "it is a link to outside the directory")
            return
        subdirectories = ("",) if name.endswith(".git") else _REPOSITORY_SUBDIRECTORIES
        for path in (entry / subdirectory for subdirectory in subdirectories):
            if _is_repository(path):
                yield DiscoveredRepository(slug, path, _find_fault(entry, path), entry)
                if path == entry:
                    return  # directories inside a repository are its content
    except OSError as error:
        yield DiscoveredRepository(slug, entry, f"it cannot be read ({error.strerror})")


def _find_fault(entry: Path, repository: Path) -> str:
    return "it references files outside its own directory" if has_outside_references(repository, entry) else ""


def _is_repository(path: Path) -> bool:
    # Called for thousands of entries every few seconds: strings are many times faster here than Path objects.
    root = str(path)
    dot_git = get_file_type(f"{root}/.git")
    if dot_git == stat.S_IFDIR:
        return bool(get_file_type(f"{root}/.git/HEAD"))
    return dot_git == stat.S_IFREG or (
        bool(get_file_type(f"{root}/HEAD")) and get_file_type(f"{root}/objects") == stat.S_IFDIR
    )
