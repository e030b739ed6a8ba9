"""The wikis that a command without a name means: that of the current folder, else all that are registered."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidSource, NoCommits, WikiNotFound
from wikiholt.interfaces.cli.command import CommandContext
from wikiholt.interfaces.cli.output import format_count, to_safe_line
from wikiholt.wikis.slugs import propose_free_slug

MAX_AUTOMATIC_PAGES = 5000
"""A folder with more pages is indexed only if it was registered with `wikiholt add`."""


def find_wikis_of_folder(wikis: Sequence[Wiki], folder: Path) -> list[Wiki]:
    """The wikis whose pages the folder contains or belongs to; empty if none is registered for it.

    Of nested sources the innermost counts. In a repository within a wiki's folder, only that repository counts.
    """
    root = find_repository_root(folder)
    inner = [directory for directory in (folder, *folder.parents) if root is None or directory.is_relative_to(root)]
    for directory in inner:
        here = [wiki for wiki in wikis if wiki.source == str(directory)]
        if here:
            position = folder.relative_to(directory)
            return [wiki for wiki in here if position.is_relative_to(wiki.settings.get("subdirectory", ""))] or here
    return []


def find_repository_root(folder: Path) -> Path | None:
    """The root of the git repository that contains the folder, or None."""
    return next((path for path in (folder, *folder.parents) if (path / ".git").exists()), None)


def register_folder(context: CommandContext, folder: Path) -> Wiki | None:
    """Register the repository around the folder, or the folder itself; None if it has no pages.

    Raises InvalidSource if it is the home directory, contains it, or has very many pages.
    """
    root = find_repository_root(folder) or folder
    if is_home_or_above(root):
        return None
    service = context.service
    wikis = service.list_wikis()
    slug = propose_free_slug(root.name, {wiki.slug for wiki in wikis})
    pages = _count_pages(context, root)
    if not pages:
        return None
    if pages > MAX_AUTOMATIC_PAGES:
        raise InvalidSource(
            f"{root} has {pages} pages, too many to index without being asked.",
            hint=f"To index it: `wikiholt add {slug} {root}`. To search another wiki: `wikiholt search -w SLUG …`",
        )
    wiki = service.add(slug, str(root), {})
    context.arguments.changes_registry = True
    sys.stderr.write(f"Added {slug}: {format_count(pages, 'page')} in {to_safe_line(str(root))}\n")
    return wiki


def is_home_or_above(folder: Path) -> bool:
    """Whether the folder is the home directory or contains it: it holds far more than notes."""
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() raises without a home
    return home.is_relative_to(folder)


def _count_pages(context: CommandContext, root: Path) -> int:
    """The number of pages of a folder that is not registered yet."""
    if not (root / ".git").exists():
        return 0
    from datetime import UTC, datetime

    source = context.service.get_source(Wiki("", "", str(root), datetime.now(UTC)))
    try:
        return len(source.read_tree(source.get_head()))
    except NoCommits:
        return 0


def require_wikis(context: CommandContext, folder: Path) -> Sequence[Wiki]:
    """All registered wikis. Raises WikiNotFound if there are none."""
    wikis = context.list_wikis()
    if wikis:
        return wikis
    if is_home_or_above(folder):
        raise InvalidSource(
            f"{folder} is not indexed without being asked, because it holds more than notes.",
            hint="Change to a folder with pages, or register one: `wikiholt add PATH`",
        )
    raise WikiNotFound(
        f"{folder} has no committed pages, and no wiki is registered in {context.settings.data}.",
        hint="Change to a folder with Markdown files, or register one: `wikiholt add PATH`",
    )
