"""The order and the titles that a static site gives its pages, from the files that define its navigation."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from wikiholt.text.links import LinkResolution, PageNameIndex, get_folder, resolve_link_paths

_FILES = (
    "mkdocs.y*ml",
    "SUMMARY.md",
    "sidebars.*s*",
    "astro.config.*",
    "_data/*nav*.*",
    "_data/*toc*.*",
    "_data/*sidebar*.*",
)
"""Patterns of the last parts of their paths."""
MAX_NAVIGATION_BYTES = 1 << 20
_ENTRY = re.compile(
    r"\[(?P<text>[^\[\]\n]{1,200})\]\((?P<linked>[^()\s]{1,300})\)"  # SUMMARY.md
    r"|^[ ]*+-[ ]++(?!(?:url|link|href|path|page|title):)(?P<title>[^:\n]{1,200}):[ ]++"  # mkdocs.yml
    r"(?P<titled>[^\s:]{1,300})[ ]*+$"
    r"|^[ ]*+(?:-[ ]++)?(?:url|link|href|path|page):[ ]++[\"']?(?P<url>[^\s\"']{1,300})"
    r"|^[ ]*+-[ ]++(?P<item>[\w./-]{1,300})[ ]*+$"
    r"|[\"'`](?P<quoted>[\w./-]{1,300})[\"'`]",  # JavaScript and JSON
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Navigation:
    """The places of pages in the navigation of a site, and the titles of some, by their paths."""

    places: Mapping[str, int] = field(default_factory=dict)
    titles: Mapping[str, str] = field(default_factory=dict)


def find_navigation_files(files: Iterable[str]) -> list[str]:
    """The files among these that define a navigation."""
    return sorted(
        file
        for file in files
        if any(fnmatchcase("/".join(file.split("/")[-1 - pattern.count("/") :]), pattern) for pattern in _FILES)
    )


def parse_navigation(
    texts: Mapping[str, str], paths: Iterable[str], aliases: Mapping[str, Iterable[str]]
) -> Navigation:
    """The navigation in the texts of these files. What names no page is passed over."""
    names = PageNameIndex(paths, resolution=LinkResolution.BY_ROUTE, aliases=aliases)
    places: dict[str, int] = {}
    titles: dict[str, str] = {}
    for file, text in texts.items():
        for match in _ENTRY.finditer(text):
            groups = match.groupdict()
            target = next((value for name, value in groups.items() if value and name not in ("text", "title")), "")
            route = re.sub(r"\A(?:\.?/)*", "/", target.strip("\"'"))
            page = names.find_page(
                resolve_link_paths((route,), False, "", LinkResolution.BY_ROUTE), False, get_folder(file)
            )
            if page is None:
                continue
            places.setdefault(page, len(places))
            if title := (groups["text"] or groups["title"] or "").strip(" \"'"):
                titles.setdefault(page, title)
    return Navigation(places, titles)
