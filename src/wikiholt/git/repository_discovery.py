"""Repositories in a directory of wikis, found by where they lie: `slug/`, `slug/repo`, `slug/repository`, `slug.git`.

A few looks at each entry tell, and no git is started. What lies in a wiki's own directory must not lead out of it:
who may write there could otherwise have another wiki's pages, or any repository of the machine, served as their own.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from wikiholt.domain.git import DiscoveredRepository
from wikiholt.errors import InvalidSlug
from wikiholt.git.repository import has_outside_references
from wikiholt.wikis.slugs import validate_slug

_REPOSITORY_SUBDIRECTORIES = ("", "repo", "repository")


def find_repositories(root: Path) -> Iterator[DiscoveredRepository]:
    """Every repository below the directory, by slug; those that cannot be taken up come with the reason."""
    try:
        top = root.resolve()
        with os.scandir(top) as entries:
            names = {entry.name: entry.is_symlink() for entry in entries if not entry.name.startswith(".")}
    except OSError as error:
        yield DiscoveredRepository("", root, f"the directory cannot be read ({error.strerror})")
        return
    # All of one slug stand side by side, and `slug` before `slug.git`.
    claimed: dict[str, Path] = {}
    for name in sorted(names, key=lambda name: (name.removesuffix(".git"), name)):
        for found in _find_in_entry(top, name, is_link=names[name]):
            if not found.reason and (winner := claimed.setdefault(found.slug, found.path)) != found.path:
                first = winner.relative_to(top)
                found = DiscoveredRepository(found.slug, found.path, f"{first} is the wiki {found.slug} already")  # noqa: PLW2901
            yield found


def _find_in_entry(directory: Path, name: str, *, is_link: bool) -> Iterator[DiscoveredRepository]:
    """What an entry of the directory holds: a repository, or one or two inside it."""
    slug = name.removesuffix(".git")
    entry = directory / name
    try:
        if is_link and not _is_within(entry, directory):
            if _is_repository(entry):
                yield DiscoveredRepository(slug, entry, "it is a link that leads out of the directory")
            return
        places = _REPOSITORY_SUBDIRECTORIES if slug == name else ("",)
        for place in (entry / inside for inside in places):
            if _is_repository(place):
                yield DiscoveredRepository(slug, place, _find_fault(slug, entry, place), entry)
                if place == entry:
                    return  # what lies inside a repository is its content
    except OSError as error:
        yield DiscoveredRepository(slug, entry, f"it cannot be read ({error.strerror})")


def _find_fault(slug: str, entry: Path, repository: Path) -> str:
    try:
        validate_slug(slug)
    except InvalidSlug as error:
        return error.message
    return "it leads out of its own directory" if has_outside_references(repository, entry) else ""


def _is_within(path: Path, directory: Path) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(directory))


def _is_repository(path: Path) -> bool:
    # Thousands are looked at every few seconds: plain names of files are many times cheaper here than paths.
    place = str(path)
    dot_git = _get_file_type(f"{place}/.git")
    if dot_git == stat.S_IFDIR:
        return bool(_get_file_type(f"{place}/.git/HEAD"))
    return dot_git == stat.S_IFREG or (
        bool(_get_file_type(f"{place}/HEAD")) and _get_file_type(f"{place}/objects") == stat.S_IFDIR
    )


def _get_file_type(path: str) -> int:
    """What there is at a path; 0 for nothing."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return 0
