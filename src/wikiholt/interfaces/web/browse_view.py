"""Pages by folder, tag and property, without a query. They need no script."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import inf
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from wikiholt.domain.search import ALL_PROPERTIES, Facet, PageFilter, StoredPage
from wikiholt.domain.wiki import Scope
from wikiholt.errors import PageNotFound, WikiholtError
from wikiholt.interfaces.http.request_context import get_request_context
from wikiholt.interfaces.web.page_frame import PageContext, render_page, render_view_error
from wikiholt.interfaces.web.search_view import render_form
from wikiholt.text.navigation import Navigation
from wikiholt.text.properties import parse_condition
from wikiholt.wikis.session import WikiSession

_INDEX_NAMES = frozenset({"index", "_index", "readme", "home"})
"""File names of a page that introduces its folder, without extension and case."""
_NO_NAVIGATION = Navigation()
_NUMBER = re.compile(r"(\d+)")
_MAX_VALUES = 500
_MAX_TREE_LEVELS = 2
"""Folders above a page that the tree shows."""
_MAX_TREE_PAGES = 60
"""Pages around the current one that the tree shows; a folder may have thousands."""


@dataclass(frozen=True, slots=True)
class Folder:
    """The contents of one folder: its folders with the number of pages in them, and its pages in reading order."""

    path: str
    folders: tuple[Facet, ...]
    pages: tuple[StoredPage, ...]

    def find_neighbours(self, path: str) -> tuple[StoredPage | None, StoredPage | None]:
        """The pages before and after this one."""
        position = next((at for at, page in enumerate(self.pages) if page.path == path), None)
        if position is None:
            return None, None
        before = self.pages[position - 1] if position else None
        return before, self.pages[position + 1] if position + 1 < len(self.pages) else None


def build_folder(path: str, pages: Iterable[StoredPage], navigation: Navigation = _NO_NAVIGATION) -> Folder:
    """The pages of a folder, first the one that introduces it, and the folders in it.

    A folder that contains nothing but its index page is listed as a page. Those in the navigation of the site are in
    its order, before the others, with its titles.
    """
    start = f"{path}/" if path else ""
    own: list[StoredPage] = []
    inside: dict[str, list[StoredPage]] = {}
    for page in pages:
        if page.path.startswith(start):
            name, slash, _ = page.path[len(start) :].partition("/")
            (inside.setdefault(name, []) if slash else own).append(page)
    for name, found in [*inside.items()]:
        if len(found) == 1 and _is_index(found[0].path.removeprefix(f"{start}{name}/")):
            own += inside.pop(name)
    places, weights, last = navigation.places, navigation.weights, len(navigation.places)

    def make_page_key(page: StoredPage) -> tuple[bool, int, float, list[tuple[int, int, str]]]:
        name = page.path[len(start) :]
        return not _is_index(name), places.get(page.path, last), weights.get(page.path, inf), _make_sort_key(name)

    def make_folder_key(name: str) -> tuple[int, float, list[tuple[int, int, str]]]:
        place = min(places.get(page.path, last) for page in inside[name])
        return place, weights.get(start + name, inf), _make_sort_key(name)

    titled = (page._replace(name=navigation.titles.get(page.path, page.name)) for page in own)
    folders = (Facet(start + name, len(inside[name])) for name in sorted(inside, key=make_folder_key))
    return Folder(path, tuple(folders), tuple(sorted(titled, key=make_page_key)))


def load_folder(wiki: WikiSession, path: str) -> Folder:
    """The contents of one folder of the wiki."""
    pages = wiki.handle.pages
    return build_folder(path, pages.list(PageFilter(path_prefix=path)).pages, pages.read_navigation())


def load_folder_of_page(wiki: WikiSession, path: str) -> Folder:
    """The folder in which a page is listed."""
    parent, _, name = path.rpartition("/")
    folder = load_folder(wiki, parent)
    is_alone = parent and _is_index(name) and len(folder.pages) == 1 and not folder.folders
    return load_folder(wiki, parent.rpartition("/")[0]) if is_alone else folder


def _is_index(name: str) -> bool:
    return name.casefold().removesuffix(".md") in _INDEX_NAMES


def _make_sort_key(name: str) -> list[tuple[int, int, str]]:
    """Sort numbers in names by their value: `2-setup` before `10-faq`."""
    parts = _NUMBER.split(name.partition("/")[0].casefold())
    return [(0, int(part[:15]), part) if part.isdecimal() else (1, 0, part) for part in parts if part]


def handle_browse(request: Request) -> Response:
    """Render the folders and pages of one folder, or the pages with one tag or one value of a property."""
    try:
        wiki = get_request_context(request).open_wiki(Scope.READ)
        title, main = _render_listing(request, wiki)
    except WikiholtError as error:
        return render_view_error(request, error, render_form())
    html = f'<main id="app.main" class="plain browse">{render_form()}{main}</main>'
    return render_page("plain", PageContext.from_request(request), html, current="browse", title=title)


def _render_listing(request: Request, wiki: WikiSession) -> tuple[str, str]:
    """The title and the HTML of what the parameters of the request name."""
    values = request.query_params
    if tag := values.get("tag", ""):
        pages = wiki.handle.pages.list(PageFilter(tags=(tag,))).pages
        return tag, _render_found(f"Pages with the tag “{tag}”", pages, ("tags", "All tags"))
    if name := values.get("property", ""):
        return _render_property(wiki, name, values.get("value"))
    if "tags" in values:
        facets = wiki.handle.pages.get_facets().tags
        links = [(facet, f"browse?{urlencode({'tag': facet.value})}") for facet in facets[:_MAX_VALUES]]
        return "Tags", f"{_render_way('Tags')}<h1>Tags</h1>{_render_counts(links, 'No page has a tag.')}"
    if "properties" in values:
        (names,) = wiki.handle.pages.get_facets(properties=(ALL_PROPERTIES,)).properties
        links = [(facet, f"browse?{urlencode({'property': facet.value})}") for facet in names.values[:_MAX_VALUES]]
        empty = "No page has a property in its frontmatter."
        return "Properties", f"{_render_way('Properties')}<h1>Properties</h1>{_render_counts(links, empty)}"
    return _render_folder(wiki, values.get("path", "").strip("/"))


def _render_property(wiki: WikiSession, name: str, value: str | None) -> tuple[str, str]:
    """The values of a property, or the pages with one of them."""
    if value is not None:
        where = PageFilter(properties=(parse_condition(f"{name}={value}"),))
        pages = wiki.handle.pages.list(where).pages
        back = (urlencode({"property": name}), name)
        return f"{name}: {value}", _render_found(f"Pages whose {name} is “{value}”", pages, back)
    (facets,) = wiki.handle.pages.get_facets(properties=(name,)).properties
    links = [
        (facet, f"browse?{urlencode({'property': name, 'value': facet.value})}")
        for facet in facets.values[:_MAX_VALUES]
    ]
    way = _render_way(name, ("properties", "Properties"))
    return name, f"{way}<h1>{escape(name)}</h1>{_render_counts(links, f'No page has the property {name}.')}"


def _render_folder(wiki: WikiSession, path: str) -> tuple[str, str]:
    folder = load_folder(wiki, path)
    if path and not folder.pages and not folder.folders:
        raise PageNotFound(f"There is no folder {path} with a page in it.", hint="open the folder above it")
    title = path.rpartition("/")[2] if path else "All pages"
    parts = [f"{render_crumbs(path)}<h1>{escape(title)}</h1>"]
    if not path:
        parts.append(
            '<p class="page-actions"><a href="browse?tags">Tags</a><a href="browse?properties">Properties</a></p>'
        )
    if folder.folders:
        items = "".join(f"<li>{_render_folder_link(facet)}</li>" for facet in folder.folders)
        parts.append(f'<h2>Folders</h2><ul class="counts">{items}</ul>')
    if folder.pages:
        heading = "<h2>Pages</h2>" if folder.folders else ""
        parts.append(f'{heading}<ul class="listing">{"".join(_render_pages(folder.pages))}</ul>')
    return title, "".join(parts) if folder.pages or folder.folders else f"{parts[0]}<p>This wiki has no page yet.</p>"


def _render_found(title: str, pages: Sequence[StoredPage], back: tuple[str, str]) -> str:
    items = "".join(_render_pages(pages, with_folder=True))
    found = f'<ul class="listing">{items}</ul>' if items else "<p>No page has this value any more.</p>"
    return f"{_render_way('', back)}<h1>{escape(title)}</h1>{found}"


def _render_pages(pages: Sequence[StoredPage], *, with_folder: bool = False) -> Iterator[str]:
    """Render one line for each page. Where names repeat, the file tells the pages apart."""
    names = [page.name for page in pages]
    for page in pages:
        folder, _, file = page.path.rpartition("/")
        repeats = file if names.count(page.name) > 1 else ""
        place = " / ".join(part for part in (*(folder.split("/") if with_folder and folder else ()), repeats) if part)
        where = f'<span class="place">{escape(place)}</span>' if place else ""
        date = page.last_updated.date().isoformat() if page.last_updated else ""
        time = f'<time datetime="{date}">{date}</time>' if date else ""
        yield f"<li>{_render_page_link(page)}{where}{time}</li>"


def _render_page_link(page: StoredPage, label: str = "") -> str:
    return f'<a href="read?page={quote(page.path)}"{label}>{escape(page.name)}</a>'


def _render_folder_link(folder: Facet) -> str:
    name = folder.value.rpartition("/")[2]
    return f'<a href="browse?path={quote(folder.value)}">{escape(name)}</a><span class="number">{folder.count:,}</span>'


def _render_counts(links: Sequence[tuple[Facet, str]], empty: str) -> str:
    items = (
        f'<li><a href="{escape(href)}">{escape(facet.value)}</a><span class="number">{facet.count:,}</span></li>'
        for facet, href in links
    )
    more = f'<p class="hint">These are the {_MAX_VALUES} most frequent ones.</p>' if len(links) == _MAX_VALUES else ""
    return f'<ul class="counts">{"".join(items)}</ul>{more}' if links else f"<p>{escape(empty)}</p>"


# Ways between pages: breadcrumbs, the pages beside the one that is shown, previous and next


def render_crumbs(path: str) -> str:
    """Render the way to a folder or a page, as links to the folders above it."""
    folders = path.split("/")[:-1] if path else []
    ways = ["/".join(folders[: depth + 1]) for depth in range(len(folders))]
    return _render_way("", *((f"path={quote(way)}", way.rpartition("/")[2]) for way in ways)) if path else ""


def _render_way(current: str, *links: tuple[str, str]) -> str:
    anchors = [
        f'<a href="browse{f"?{escape(query)}" if query else ""}">{escape(text)}</a>'
        for query, text in (("", "All pages"), *links)
    ]
    parts = " / ".join((*anchors, *((f'<span aria-current="page">{escape(current)}</span>',) if current else ())))
    return f'<nav class="crumbs" aria-label="Folders">{parts}</nav>'


def render_tree(folder: Folder, current: str) -> str:
    """Render the folders above a page, and the folders and pages beside it."""
    above = folder.path.split("/") if folder.path else []
    ways = [(f"browse?path={quote('/'.join(above[: depth + 1]))}", name) for depth, name in enumerate(above)]
    # The breadcrumbs have the others.
    ways = [("browse", "All pages"), *ways[-_MAX_TREE_LEVELS:]]
    open_folders = "".join(
        f'<li class="open depth{depth}"><a href="{href}">{escape(name)}</a></li>'
        for depth, (href, name) in enumerate(ways)
    )
    depth = len(ways)
    folders = "".join(f'<li class="folder depth{depth}">{_render_folder_link(facet)}</li>' for facet in folder.folders)
    position = next((at for at, page in enumerate(folder.pages) if page.path == current), 0)
    start = max(0, min(position - _MAX_TREE_PAGES // 2, len(folder.pages) - _MAX_TREE_PAGES))
    pages = "".join(
        f'<li class="depth{depth}">{_render_page_link(page, " aria-current=page" if page.path == current else "")}</li>'
        for page in folder.pages[start : start + _MAX_TREE_PAGES]
    )
    omitted = len(folder.pages) - _MAX_TREE_PAGES
    if omitted > 0:
        pages += f'<li class="depth{depth}"><a href="{ways[-1][0]}">{omitted:,} more pages</a></li>'
    return (
        '<nav class="tree" aria-label="Pages in this folder"><details open><summary>Pages</summary>'
        f"<ul>{open_folders}{pages}{folders}</ul></details></nav>"
    )


def render_neighbours(folder: Folder, current: str) -> str:
    """Render links to the previous and the next page of the folder."""
    before, after = folder.find_neighbours(current)
    links = "".join(
        f'<a rel="{relation}" href="read?page={quote(page.path)}"><small>{text}</small>{escape(page.name)}</a>'
        for relation, text, page in (("prev", "Previous", before), ("next", "Next", after))
        if page is not None
    )
    return f'<nav class="neighbours" aria-label="Previous and next page">{links}</nav>' if links else ""
