"""Finds the page that an argument names: by path, file, title, alias, or a place such as `guides/backup.md:12`."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from wikiholt.domain.search import StoredPage
from wikiholt.errors import IndexUnavailable, InvalidPage, PageNotFound
from wikiholt.interfaces.cli.wiki_selection import get_current_directory, get_root
from wikiholt.text.page_names import strip_page_extension
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.pages.page_locator import PageFile

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
    pages = _list_pages(handle)
    for name, heading, line in readings:
        key = name.strip().casefold()
        titled = [page for page in pages if page.name.casefold() == key]
        titled = titled or [page for page in pages if key in map(str.casefold, page.aliases)]
        titled = titled or [page for page in pages if _is_end_of_path(key, page)]
        if len(titled) == 1:
            return PageArgument(titled[0].path, titled[0].file, heading, line)
        if titled:
            paths = ", ".join(page.path for page in titled[:_MAX_SUGGESTIONS])
            raise PageNotFound(
                f"{len(titled)} pages have the title, alias or file name {name[:_MAX_SHOWN_CHARS]!r}.",
                hint=f"Use a path: {paths}{', …' if len(titled) > _MAX_SUGGESTIONS else ''}",
            )
    raise _make_not_found_error(handle, readings[-1][0], pages)


def _is_end_of_path(key: str, page: StoredPage) -> bool:
    """Whether the key is the end of the page's file name, with or without folders and extension."""
    file = f"/{page.file}".casefold()
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


def _list_pages(handle: WikiHandle) -> Sequence[StoredPage]:
    try:
        return handle.pages.list().pages
    except IndexUnavailable:
        return ()


def _make_not_found_error(handle: WikiHandle, name: str, pages: Sequence[StoredPage]) -> PageNotFound:
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
