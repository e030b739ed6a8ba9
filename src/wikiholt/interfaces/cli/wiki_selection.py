"""Selects the wiki of a command: the one named with --wiki, that of the current directory, or the only one."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from wikiholt.domain.wiki import Wiki
from wikiholt.errors import WikiNotFound
from wikiholt.git.remote_url import is_remote
from wikiholt.interfaces.cli.command import CommandContext

_MAX_NAMED_WIKIS = 10


def add_wiki_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w", "--wiki", metavar="SLUG", help="the wiki (default: that of the current directory, or the only one)"
    )


def resolve_wiki(context: CommandContext) -> Wiki:
    """The wiki of --wiki; without it, the wiki of the current directory, else the only one. Raises WikiNotFound."""
    if context.arguments.wiki is not None:
        return context.service.registry.get(context.arguments.wiki)
    wikis = context.service.list_wikis()
    if not wikis:
        raise context.make_no_wikis_error()
    here = find_wikis_of_directory(wikis, get_current_directory()) or wikis
    if len(here) == 1:
        return here[0]
    slugs = [wiki.slug for wiki in here[:_MAX_NAMED_WIKIS]]
    more = ", …" if len(here) > len(slugs) else ""
    problem = "No wiki was named, and there are several." if len(here) == len(wikis) else "Several wikis are here."
    raise WikiNotFound(problem, hint=f"Name one with --wiki: {', '.join(slugs)}{more}")


def find_wikis_of_directory(wikis: Sequence[Wiki], directory: Path | None) -> list[Wiki]:
    """The wikis with the deepest directory that contains this one; else those whose repository contains it."""
    if directory is None:
        return []
    local = [(wiki, root) for wiki in wikis if (root := get_root(wiki)) is not None]
    around = [(wiki, root) for wiki, root in local if directory.is_relative_to(root)]
    if around:
        depth = max(len(root.parts) for _, root in around)
        return [wiki for wiki, root in around if len(root.parts) == depth]
    return [wiki for wiki, _ in local if directory.is_relative_to(os.path.realpath(wiki.source))]


def get_root(wiki: Wiki) -> Path | None:
    """The directory of the wiki's files, with links resolved; None for a remote repository."""
    if is_remote(wiki.source):
        return None
    return Path(os.path.realpath(Path(wiki.source, wiki.settings.get("subdirectory", "").strip("/"))))


def get_current_directory() -> Path | None:
    """The current directory with links resolved; None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None
