"""The order and the titles that a static site gives its pages, from the files that define its navigation."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import MappingProxyType

from wikiholt.text.links import LinkResolution, PageNameIndex, get_folder, resolve_link_paths
from wikiholt.text.page_names import strip_page_extension

_FILES = (
    "mkdocs.y*ml",
    "SUMMARY.md",
    "sidebars.*s*",
    "astro.config.*",
    ".vitepress/*.*s",
    ".vitepress/config/*.*s",
    ".vuepress/config.*",
    "config.*ts",  # of a language in VitePress
    "_category_.*",
    "_data/*nav*.*",
    "_data/*toc*.*",
    "_data/*sidebar*.*",
)
"""Patterns of the last parts of their paths."""
MAX_NAVIGATION_BYTES = 1 << 20
WEIGHT_PROPERTIES = ("weight", "sidebar_position", "nav_order", "sidebar.order", "eleventyNavigation.order", "order")
"""The frontmatter of Hugo, Docusaurus, just-the-docs, Starlight, Eleventy and VuePress that gives a page its place."""
_FOLDER_FILE = re.compile(r"\A(?:.*/)?_category_\.(?:json|ya?ml)\Z")  # Docusaurus
_POSITION = re.compile(r"""^[\s{,]*+["']?position["']?\s*+:\s*+(-?\d{1,9}(?:\.\d{1,9})?)""", re.MULTILINE)
_INDEX_NAMES = frozenset({"_index", "index", "readme"})
_ENTRY = re.compile(
    r"\[(?P<text>[^\[\]\n]{1,200})\]\((?P<linked>[^()\s]{1,300})\)"  # SUMMARY.md
    r"|^[ ]*+-[ ]++(?!(?:url|link|href|path|page|title):)(?P<title>[^:\n]{1,200}):[ ]++"  # mkdocs.yml
    r"(?P<titled>[^\s:]{1,300})[ ]*+$"
    r"|^[ ]*+(?:-[ ]++)?(?:url|link|href|path|page):[ ]++[\"']?(?P<url>[^\s\"']{1,300})"
    r"|^[ ]*+-[ ]++(?P<item>[\w./-]{1,300})[ ]*+$"
    r"|\bbase:\s{0,9}[\"'](?P<base>[\w./-]{1,300})[\"']"  # VitePress
    r"|\b(?:text|label)[\"']?:\s{0,9}[\"'](?P<label>[^\"'\n]{1,200})[\"'],\s{0,99}"
    r"[\"']?(?:link|slug|id)[\"']?:\s{0,9}[\"'](?P<labelled>[\w./-]{1,300})[\"']"
    r"|[\"'`](?P<quoted>[\w./-]{1,300})[\"'`]",  # JavaScript and JSON
    re.MULTILINE,
)
_TARGETS = ("linked", "titled", "url", "item", "labelled", "quoted")


@dataclass(frozen=True, slots=True)
class Navigation:
    """The places of pages in the navigation of a site, and the titles of some, by their paths."""

    places: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    """The numbers that order other pages and folders among their neighbours, the lowest first."""
    titles: Mapping[str, str] = field(default_factory=dict)


def find_navigation_files(files: Iterable[str]) -> list[str]:
    """The files among these that define a navigation."""
    return sorted(
        file
        for file in files
        if any(fnmatchcase("/".join(file.split("/")[-1 - pattern.count("/") :]), pattern) for pattern in _FILES)
    )


def parse_navigation(
    texts: Mapping[str, str],
    paths: Iterable[str],
    aliases: Mapping[str, Iterable[str]],
    numbers: Mapping[str, float] = MappingProxyType({}),
) -> Navigation:
    """The navigation in the texts of these files. What names no page is passed over.

    `numbers` are those in the frontmatter of pages; that of a page that introduces a folder is also the folder's.
    """
    weights = dict(numbers)
    for path, number in numbers.items():
        folder, _, name = strip_page_extension(path).rpartition("/")
        if folder and (name.casefold() in _INDEX_NAMES or name == folder.rpartition("/")[2]):
            weights.setdefault(folder, number)
    names = PageNameIndex(paths, resolution=LinkResolution.BY_ROUTE, aliases=aliases)
    places: dict[str, int] = {}
    titles: dict[str, str] = {}
    for file, text in texts.items():
        if _FOLDER_FILE.match(file):
            if position := _POSITION.search(text):
                weights[get_folder(file)] = float(position[1])
            continue
        for targets, title in _iter_entries(text):
            routes = (re.sub(r"\A(?:\.?/)*", "/", target) for target in targets)
            keys = (resolve_link_paths((route,), False, "", LinkResolution.BY_ROUTE) for route in routes)
            page = next(filter(None, (names.find_page(each, False, get_folder(file)) for each in keys)), None)
            if page is None:
                continue
            places.setdefault(page, len(places))
            if title:
                titles[page] = title  # a menu above the pages may come before
    return Navigation(places, weights, titles)


def _iter_entries(text: str) -> Iterator[tuple[list[str], str]]:
    """What each entry may name, the most likely first, and its title or ""."""
    base = ""
    for match in _ENTRY.finditer(text):
        groups = match.groupdict()
        base = groups["base"] or base
        title = (groups["text"] or groups["title"] or groups["label"] or "").strip(" \"'")
        target = "".join(filter(None, map(groups.get, _TARGETS))).strip("\"'")
        if target:
            yield [base + target, target] if base and not target.startswith("/") else [target], title
