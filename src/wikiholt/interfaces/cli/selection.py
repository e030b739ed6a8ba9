"""Selects the wikis of a command (those it names, those of the current folder, the only one, or all) and its page."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.domain.search import StoredPage
from wikiholt.domain.slugs import propose_free_slug
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import IndexUnavailable, InvalidPage, InvalidSource, NoCommits, PageNotFound, WikiNotFound
from wikiholt.git.remote_url import is_remote
from wikiholt.interfaces.cli.command import CommandContext
from wikiholt.interfaces.cli.folder_scope import find_repository_root, find_scope, get_home, is_home_or_above
from wikiholt.interfaces.cli.output import format_count, to_safe_line
from wikiholt.text.code_folders import propose_ignored
from wikiholt.text.ignore_patterns import build_matcher
from wikiholt.text.page_names import is_page_file, strip_page_extension

if TYPE_CHECKING:  # a search through a running service needs none of it
    from wikiholt.wikis.handle import WikiHandle
    from wikiholt.wikis.pages.page_reader import PageFile

_MAX_NAMED_WIKIS = 10


def add_wiki_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-w", "--wiki", metavar="SLUG", help="the wiki (default: that of the current directory, or the only one)"
    )


def resolve_wiki(context: CommandContext) -> Wiki:
    """The wiki of --wiki; without it, the wiki of the current directory, else the only one. Raises WikiNotFound."""
    if context.arguments.wiki is not None:
        return context.service.registry.get(context.arguments.wiki)
    return choose_default_wiki(context, "Name one with --wiki")


def choose_default_wiki(context: CommandContext, advice: str) -> Wiki:
    """The wiki of the current directory, else the only one. Raises WikiNotFound, with the advice if several match."""
    wikis = context.service.list_wikis()
    if not wikis:
        raise context.make_no_wikis_error()
    here = find_wikis_of_directory(wikis, get_current_directory()) or wikis
    if len(here) == 1:
        return here[0]
    raise make_several_error(here, advice)


def make_several_error(wikis: Sequence[Wiki], advice: str) -> WikiNotFound:
    """The error of a command for one wiki that could mean several."""
    slugs = ", ".join(wiki.slug for wiki in wikis[:_MAX_NAMED_WIKIS])
    more = ", …" if len(wikis) > _MAX_NAMED_WIKIS else ""
    return WikiNotFound("No wiki was named, and several are possible.", hint=f"{advice}: {slugs}{more}")


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


# The wikis of a search without a name: those of the current folder, which is registered if it has pages, else all.


MAX_AUTOMATIC_PAGES = 5000
"""A folder with more pages is indexed only if it was registered with `wikiholt add`."""
MAX_AUTOMATIC_FILES = 50_000
"""The same for files of any kind, which all have to be listed."""


def choose_folder_wikis(context: CommandContext, known: Sequence[Wiki]) -> Sequence[Wiki]:
    """Those of the known wikis that are in the current folder, which is registered if it has pages; else all.

    Raises WikiNotFound if there are none.
    """
    folder = Path.cwd().resolve()
    if wikis := find_wikis_of_folder(known, folder):
        return wikis
    others = _find_wikis_of_repository(known, folder)
    wiki = register_folder(context, folder, or_repository=not others)
    return [wiki] if wiki is not None else others or require_wikis(context, folder)


def find_wikis_of_folder(wikis: Sequence[Wiki], folder: Path) -> list[Wiki]:
    """The wikis that the folder belongs to, or that are in it; not those of other folders of its repository."""
    found = _find_wikis_of_repository(wikis, folder)
    roots = [get_root(wiki) or folder for wiki in found]
    is_related = any(folder.is_relative_to(root) or root.is_relative_to(folder) for root in roots)
    return found if is_related else []


def _find_wikis_of_repository(wikis: Sequence[Wiki], folder: Path) -> list[Wiki]:
    """The wikis that contain the folder, else all of its repository. Not those outside of a repository around it."""
    root = find_repository_root(folder)
    found = find_wikis_of_directory(wikis, folder)
    return [wiki for wiki in found if root is None or Path(wiki.source).resolve().is_relative_to(root)]


def register_folder(context: CommandContext, folder: Path, *, or_repository: bool = True) -> Wiki | None:
    """Register the folder, or the vault or the documents that it is part of, or its repository if it has no pages.

    None if there are no pages outside of other wikis. The home directory and those above it are never registered.
    Raises InvalidSource if there are very many pages.
    """
    if is_home_or_above(folder):
        return None
    repository = find_repository_root(folder)
    place = find_scope(folder, repository)
    (source, settings), pages = _find_pages(context, place, repository)
    if not pages and repository is not None and or_repository:
        place = repository
        (source, settings), pages = _find_pages(context, place, repository)
    if not pages:
        return None
    name = place.name if repository in (None, place) else f"{repository.name}-{place.name}"
    slug = propose_free_slug(name, {wiki.slug for wiki in context.service.list_wikis()})
    if pages > MAX_AUTOMATIC_PAGES:
        options = f" --subdirectory {settings['subdirectory']}" if "subdirectory" in settings else ""
        raise InvalidSource(
            f"{place} has over {MAX_AUTOMATIC_PAGES} pages or {MAX_AUTOMATIC_FILES} files: "
            "a search does not index it automatically.",
            hint=f"To index it: `wikiholt add {slug} {source}{options}`."
            " To search another wiki: `wikiholt search -w SLUG WORDS`",
        )
    wiki = context.service.add(slug, str(source), settings)
    from wikiholt.interfaces.cli.backup_commands import backup_registry_if_due

    backup_registry_if_due(context.service)  # now: indexing takes long, and may be killed
    state = "" if wiki.is_directory else " at HEAD"
    sys.stderr.write(f"Added {slug}: {format_count(pages, 'page')}{state} in {to_safe_line(str(place))}\n")
    if place not in (folder, repository):
        sys.stderr.write(f"It contains this folder, {to_safe_line(str(folder))}.\n")
    if repository not in (None, place):
        command = f"wikiholt add {shlex.quote(str(repository))}"
        sys.stderr.write(context.complete(f"To search the whole repository, run `{command}`.\n"))
    if "ignore" in settings:
        _report_ignored(context, slug, settings["ignore"])
    return wiki


def _report_ignored(context: CommandContext, slug: str, patterns: str) -> None:
    """Say what the search ignores in a folder of code, and how to include it."""
    sys.stderr.write(f"Test fixtures and generated files are ignored: {to_safe_line(patterns)}\n")
    commands = f"`wikiholt set {slug} ignore=` and `wikiholt sync {slug}`"
    sys.stderr.write(context.complete(f"To include them, run {commands}.\n"))


def _find_pages(
    context: CommandContext, place: Path, repository: Path | None
) -> tuple[tuple[Path, dict[str, str]], int]:
    """The source and the settings of a wiki of this place, and its number of pages: at HEAD, else on disk."""
    if repository is not None:
        settings = {} if place == repository else {"subdirectory": place.relative_to(repository).as_posix()}
        committed, other_files = _read_committed_files(context, repository, settings)
        if committed:
            count, ignored = _leave_out(committed, [*committed, *other_files])
            return (repository, settings | ignored), count
    others = {str(other) for wiki in context.service.list_wikis() if (other := get_root(wiki)) is not None}
    files = list_files(place, others)
    if files is None:
        return (place, {"kind": "directory"}), MAX_AUTOMATIC_PAGES + 1
    pages, ignored = _leave_out(list(filter(is_page_file, files)), files)
    return (place, {"kind": "directory"} | ignored), pages


def _leave_out(pages: Sequence[str], files: Collection[str]) -> tuple[int, dict[str, str]]:
    """The number of pages without the test fixtures and generated files of a folder of code, and the setting for it."""
    patterns = propose_ignored(files)
    is_ignored = build_matcher(patterns)
    count = sum(not is_ignored(page) for page in pages)
    return (count, {"ignore": ",".join(patterns)}) if patterns and count else (len(pages), {})


def _read_committed_files(
    context: CommandContext, repository: Path, settings: Mapping[str, str]
) -> tuple[Sequence[str], Sequence[str]]:
    """The pages and the other files at HEAD; none without a commit."""
    source = context.service.get_source(Wiki("", "", str(repository), datetime.now(UTC), settings))
    try:
        pages, others = source.read_all_files(source.get_head())
    except NoCommits:
        return (), ()
    return list(pages), others


def list_files(root: Path, left_out: Collection[str] = ()) -> list[str] | None:
    """The files below a folder, except in the folders to leave out; None if there are too many for a search."""
    pages, files = 0, []
    for folder, directories, names in os.walk(root):
        visible = [name for name in directories if not name.startswith(".") and name != "node_modules"]
        directories[:] = [name for name in visible if os.path.join(folder, name) not in left_out]  # noqa: PTH118
        prefix = "" if folder == str(root) else f"{os.path.relpath(folder, root)}/"
        files += [f"{prefix}{name}" for name in names]
        pages += sum(map(is_page_file, names))
        if pages > MAX_AUTOMATIC_PAGES or len(files) > MAX_AUTOMATIC_FILES:
            return None
    return files


def require_wikis(context: CommandContext, folder: Path) -> Sequence[Wiki]:
    """All registered wikis. Raises WikiNotFound if there are none."""
    wikis = context.list_wikis()
    if wikis:
        return wikis
    if is_home_or_above(folder):
        root = find_repository_root(folder) or folder
        relation = "is" if root == get_home() else "contains"
        raise InvalidSource(
            f"{root} {relation} your home directory: a search does not index it automatically.",
            hint="Change to a folder with pages, or register one: `wikiholt add PATH`",
        )
    raise WikiNotFound(
        f"{folder} has no pages, and no wiki is registered in {context.settings.data}.",
        hint="Change to a folder with Markdown files, or register one: `wikiholt add PATH`",
    )


# The page that an argument names: by path, file, title, alias, or a place such as `guides/backup.md:12`.


_PLACE = re.compile(r"(.+?):([0-9]{1,9})(?::[0-9]{1,9})?:?", re.DOTALL)
_MAX_SUGGESTIONS = 3
_MAX_COMPARED_PAGES = 20_000
_MAX_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class PageArgument:
    """A page, and the heading or the line that the argument names, if any."""

    path: str
    file: str
    heading: str = ""
    line: int | None = None


def find_page(handle: WikiHandle, text: str) -> PageArgument:
    """The page that the text names. A path from the current directory wins over one from the wiki's directory.

    Raises PageNotFound with similar names, and InvalidPage for an empty text.
    """
    if not text.strip():
        raise InvalidPage("The page has no name.", hint="Write its path, file or title.")
    readings = list(_iter_readings(text))
    for name, heading, line in readings:
        page_file = _find_by_path(handle, name)
        if page_file is not None:
            return PageArgument(page_file.path, page_file.file, heading, line)
    from wikiholt.text.analysis import strip_accents

    pages = list_pages(handle)
    for fold in (str.casefold, strip_accents):
        for name, heading, line in readings:
            page = _find_by_name(name, pages, fold)
            if page is not None:
                return PageArgument(page.path, page.file, heading, line)
    raise _make_not_found_error(handle, readings[-1][0], pages)


def _find_by_name(name: str, pages: Sequence[StoredPage], fold: Callable[[str], str]) -> StoredPage | None:
    """The only page with this title, alias or end of its file. Raises PageNotFound if there are several."""
    key = fold(name.strip())
    titled = [page for page in pages if fold(page.name) == key]
    titled = titled or [page for page in pages if key in map(fold, page.aliases)]
    titled = titled or [page for page in pages if _is_end_of_path(key, fold(f"/{page.file}"))]
    if len(titled) > 1:
        paths = ", ".join(page.path for page in titled[:_MAX_SUGGESTIONS])
        raise PageNotFound(
            f"{len(titled)} pages have the title, alias or file name {name[:_MAX_SHOWN_CHARS]!r}.",
            hint=f"Use a path: {paths}{', …' if len(titled) > _MAX_SUGGESTIONS else ''}",
        )
    return titled[0] if titled else None


def _is_end_of_path(key: str, file: str) -> bool:
    """Whether the key is the end of a file name, with or without folders and extension."""
    return file.endswith(f"/{key}") or strip_page_extension(file).endswith(f"/{key}")


def _iter_readings(text: str) -> Iterator[tuple[str, str, int | None]]:
    """What the text can mean: (name, heading, line). Names may contain colons and number signs."""
    yield text, "", None
    if place := _PLACE.fullmatch(text):
        yield place[1], "", int(place[2]) or None
    for name, _, heading in dict.fromkeys((text.partition("#"), text.rpartition("#"))):
        if name and heading:
            yield name, heading, None


def _find_by_path(handle: WikiHandle, name: str) -> PageFile | None:
    for path in (_to_wiki_path(name, get_root(handle.wiki)), name):
        with suppress(InvalidPage):
            page_file = handle.pages.find_file(path) if path else None
            if page_file is not None:
                return page_file
    return None


def _to_wiki_path(name: str, root: Path | None) -> str:
    """The path from the wiki's directory, for one from the current directory; empty if it is not inside."""
    here = get_current_directory()
    if root is None or (here is None and not name.startswith("/")) or "\0" in name:
        return ""
    path = Path(os.path.normpath(Path(here or "/", name)))
    path = Path(os.path.realpath(path.parent), path.name)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else ""


def list_pages(handle: WikiHandle) -> Sequence[StoredPage]:
    """All indexed pages; none without an index."""
    try:
        return handle.pages.list().pages
    except IndexUnavailable:
        return ()


def _make_not_found_error(handle: WikiHandle, name: str, pages: Sequence[StoredPage]) -> PageNotFound:
    from difflib import get_close_matches

    wanted = name.casefold().strip("/")
    known: dict[str, str] = {}
    for page in pages[:_MAX_COMPARED_PAGES]:
        for key in (page.path, page.path.rpartition("/")[2], page.name):
            known.setdefault(key.casefold(), page.path)
    near = [
        *get_close_matches(wanted, known, _MAX_SUGGESTIONS),
        *(key for key in known if len(wanted) > 1 and wanted in key),
    ]
    paths = list(dict.fromkeys(known[key] for key in near))[:_MAX_SUGGESTIONS]
    return PageNotFound(
        f"There is no page {name[:_MAX_SHOWN_CHARS]!r} in {handle.wiki.slug}.",
        hint=f"Did you mean {' or '.join(paths)}?" if paths else "Find it with `wikiholt search`.",
    )
