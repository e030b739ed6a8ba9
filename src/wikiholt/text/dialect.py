"""The dialect of a wiki: which side of a wiki link is its target, how links are resolved, and which markup it has.

`docs/dialects.md` lists what each dialect recognizes. The setting `dialect` names it; `auto` detects it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase

from wikiholt.text.links import LinkResolution, PageNameIndex, resolve_link_paths


class LinkOrder(Enum):
    """Which side of `[[a|b]]` is the target. `EITHER` means the right side, or else the left one."""

    EITHER = "either"
    TEXT_FIRST = "text-first"
    TARGET_FIRST = "target-first"


@dataclass(frozen=True, slots=True)
class Dialect:
    """The rules of a dialect, beyond GitHub's Markdown."""

    name: str
    link_order: LinkOrder = LinkOrder.EITHER
    resolution: LinkResolution = LinkResolution.BY_PATH
    has_note_markup: bool = False
    """Whether it has `%%comments%%`, `==highlights==`, inline `#tags`, `key:: value` and block ids."""
    has_admonitions: bool = False
    """Whether it has `!!! note` boxes, `=== "tabs"` and `{: attributes }`."""
    has_templates: bool = False
    """Whether it has `{% tags %}`, `{{ variables }}` and `{{< shortcodes >}}`."""
    has_containers: bool = False
    """Whether it has `:::tip` boxes."""
    has_components: bool = False
    """Whether every Markdown page is MDX."""
    site_files: tuple[str, ...] = ()
    """Patterns of the files that a site of this dialect has in its folder."""

    @property
    def has_routes(self) -> bool:
        """Whether the pages are a static site."""
        return self.resolution is LinkResolution.BY_ROUTE


AUTO = "auto"
GFM = Dialect("gfm")
OBSIDIAN = Dialect("obsidian", LinkOrder.TARGET_FIRST, LinkResolution.BY_NAME, has_note_markup=True)
GOLLUM = Dialect("gollum", LinkOrder.TEXT_FIRST)
OTTERWIKI = Dialect("otterwiki", LinkOrder.TEXT_FIRST, LinkResolution.OTTERWIKI)
OTTERWIKI_CASE = Dialect("otterwiki-case", LinkOrder.TEXT_FIRST, LinkResolution.OTTERWIKI_WITH_CASE)
OTTERWIKI_LINK_TITLE = Dialect("otterwiki-linktitle", LinkOrder.TARGET_FIRST, LinkResolution.OTTERWIKI)
OTTERWIKI_LINK_TITLE_CASE = Dialect(
    "otterwiki-linktitle-case", LinkOrder.TARGET_FIRST, LinkResolution.OTTERWIKI_WITH_CASE
)
OTTERWIKI_DIALECTS = (OTTERWIKI, OTTERWIKI_CASE, OTTERWIKI_LINK_TITLE, OTTERWIKI_LINK_TITLE_CASE)
MKDOCS = Dialect(
    "mkdocs",
    resolution=LinkResolution.BY_ROUTE,
    has_admonitions=True,
    has_templates=True,
    site_files=("mkdocs.yml", "mkdocs.yaml"),
)
SITE_DIALECTS = (
    MKDOCS,
    Dialect(
        "docusaurus",
        resolution=LinkResolution.BY_ROUTE,
        has_containers=True,
        has_components=True,
        site_files=("docusaurus.config.*",),
    ),
    Dialect(
        "vitepress",
        resolution=LinkResolution.BY_ROUTE,
        has_containers=True,
        has_templates=True,
        site_files=(".vitepress/config.*", ".vitepress/config/index.*", ".vuepress/config.*"),
    ),
    Dialect("starlight", resolution=LinkResolution.BY_ROUTE, has_containers=True, site_files=("astro.config.*",)),
    Dialect(
        "hugo",
        resolution=LinkResolution.BY_ROUTE,
        has_templates=True,
        site_files=("hugo.*", "config/_default/*", "archetypes/default.md"),
    ),
    Dialect(
        "eleventy",
        resolution=LinkResolution.BY_ROUTE,
        has_templates=True,
        site_files=(".eleventy.js", "eleventy.config.*"),
    ),
    Dialect("mdbook", resolution=LinkResolution.BY_ROUTE, has_templates=True, site_files=("book.toml",)),
    Dialect("jekyll", resolution=LinkResolution.BY_ROUTE, has_templates=True, site_files=("_config.yml",)),
)
"""Generators of static sites."""
DIALECTS = {dialect.name: dialect for dialect in (GFM, OBSIDIAN, GOLLUM, *OTTERWIKI_DIALECTS, *SITE_DIALECTS)}
"""Every dialect by name."""

MAX_SAMPLE_PAGES = 200
"""Pages whose links are read to detect a dialect."""

_PIPED_LINK = re.compile(r"\[\[([^\[\]|\n]{1,250})\|([^\[\]|\n]{1,250})\]\]")
_MIN_MAJORITY = 2
"""How many times as many links must speak for one order as for the other."""


def detect_dialect(
    paths: Iterable[str], other_files: Iterable[str], texts: Iterable[str], previous: Dialect = GFM
) -> Dialect:
    """Detect the dialect by the files that are not pages, or else by the side of `[[a|b]]` that names a page.

    `paths` are those of all pages. `other_files` are relative to the wiki; `../mkdocs.yml` counts. A static site has
    most of the pages in its folder. Without evidence the dialect stays `previous`.
    """
    paths = list(paths)
    sites: dict[str, Dialect] = {}
    for file in other_files:
        if ".obsidian" in file.split("/")[:-1] or file == "logseq/config.edn":
            return OBSIDIAN
        for pattern, dialect in _SITE_FILES:
            if (folder := _find_site_folder(file, pattern)) is not None:
                sites.setdefault(folder, dialect)
    counts = {folder: sum(path.startswith(folder) for path in paths) for folder in sites}
    folder = max(counts, key=lambda folder: (counts[folder], folder), default="")
    if sites and 2 * counts[folder] > len(paths):
        return sites[folder]
    # A dialect that files decided needs these files.
    undecided = GFM if previous in SITE_DIALECTS else previous
    left, right = _count_target_sides(paths, texts)
    if left > _MIN_MAJORITY * right:
        return OBSIDIAN
    return GOLLUM if right > _MIN_MAJORITY * left else undecided


_SITE_FILES = tuple((pattern, dialect) for dialect in SITE_DIALECTS for pattern in dialect.site_files)


def _find_site_folder(file: str, pattern: str) -> str | None:
    """The folder of the site whose settings are in this file, with a slash; empty for the folders above the wiki."""
    parts, wanted = file.split("/"), pattern.split("/")
    if len(parts) < len(wanted) or not all(map(fnmatchcase, parts[-len(wanted) :], wanted)):
        return None
    folders = parts[: -len(wanted)]
    return "/".join((*folders, "")) if folders and ".." not in folders else ""


def _count_target_sides(paths: Iterable[str], texts: Iterable[str]) -> tuple[int, int]:
    """How many links name a page only on their left side, and only on their right side."""
    links = [match.groups() for text in texts for match in _PIPED_LINK.finditer(text)]
    names = PageNameIndex(paths if links else ())
    left = right = 0
    for sides in links:
        is_left, is_right = (_is_page(names, side) for side in sides)
        left += is_left and not is_right
        right += is_right and not is_left
    return left, right


def _is_page(names: PageNameIndex, target: str) -> bool:
    return names.find_page(resolve_link_paths((target.removesuffix("\\"),), True, ""), True) is not None
