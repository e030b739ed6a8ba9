"""Page lists, facets and links of one wiki, from its index."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

from wikiholt.domain.index import Recipe
from wikiholt.domain.page import Facets, Link, PageGraph, PageLink, PageLinks, PageList, PageRef
from wikiholt.domain.search import PageFilter, StoredLink, StoredPage
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import IndexMissing, InvalidQuery
from wikiholt.index.pipeline import TextPipeline
from wikiholt.text.links import (
    LinkResolution,
    PageNameIndex,
    fold_path,
    get_folder,
    get_fragment,
    get_last_part,
    get_other_names,
    is_attachment,
)
from wikiholt.text.page_names import is_code

IndexOpener = Callable[[], AbstractContextManager[WikiIndex]]
"""Opens the published index of the wiki. Raises IndexMissing while there is none."""

_NO_FILTER = PageFilter()


class IndexedPages:
    """Lists pages and resolves links, by the index."""

    def __init__(self, open_index: IndexOpener) -> None:
        self._open_index = open_index

    def list(self, where: PageFilter = _NO_FILTER, limit: int | None = None, offset: int = 0) -> PageList:
        """The indexed pages that pass the filter, by path."""
        where.validate()
        if offset < 0 or (limit is not None and limit < 0):
            raise InvalidQuery("limit and offset must not be negative", hint="use numbers from 0 on")
        with self._open_index() as index:
            total, pages = index.list_pages(where, limit, offset)
            return PageList(tuple(pages), total, index.get_state().revision)

    def require_complete(self) -> None:
        """Raise IndexMissing until the first sync has ended: until then, the index has only a part of the pages."""
        with self._open_index() as index:
            _require_complete(index)

    def get_facets(self, where: PageFilter = _NO_FILTER, properties: Sequence[str] = ()) -> Facets:
        """The categories, tags, top-level directories and properties of the pages that pass, with counts."""
        where.validate()
        with self._open_index() as index:
            return index.get_facets(where, properties)

    def get_numbers(self, properties: Sequence[str]) -> Mapping[str, float]:
        """The first number in one of these properties of each page that has one, by path."""
        with self._open_index() as index:
            return index.get_numbers(properties)

    def get_revision(self) -> str | None:
        """The indexed revision; None if there is no index."""
        try:
            with self._open_index() as index:
                return index.get_state().revision
        except IndexMissing:
            return None

    def get_links(self, path: str) -> PageLinks:
        """The links on a page as indexed, and the links to it."""
        with self._open_index() as index:
            _require_complete(index)
            page = index.find_page(path)
            links = index.get_links([page.page_id]) if page else ()
            return _resolve_links(index, path, links)

    def resolve_links(self, path: str, links: Iterable[Link]) -> PageLinks:
        """Resolve links on a page that may not be indexed like this, and find the links to it."""
        with self._open_index() as index:
            _require_complete(index)
            return _resolve_links(index, path, links)

    def build_graph(self) -> PageGraph:
        """All pages and the links between them."""
        with self._open_index() as index:
            return _build_graph(index)[0]

    def find_orphans(self) -> Sequence[StoredPage]:
        """The pages that no other page links to; source code never needs a link."""
        with self._open_index() as index:
            graph, pages = _build_graph(index)
        linked = {target for _, target in graph.edges}
        return [page for page in pages if page.path not in linked and not is_code(page.file)]


def _require_complete(index: WikiIndex) -> None:
    """Raise IndexMissing until the first sync has ended: a list of pages or links would be incomplete."""
    if index.get_state().revision is None:
        raise IndexMissing("this wiki is not indexed yet", hint="try again in a moment")


def _build_graph(index: WikiIndex) -> tuple[PageGraph, Sequence[StoredPage]]:
    """The graph, and its pages by path."""
    _require_complete(index)
    _, listed = index.list_pages(_NO_FILTER, None)
    links, state = index.get_links(), index.get_state()
    pages = {page.page_id: page for page in listed}
    names = _build_name_index(listed, state.recipe)
    edges: dict[tuple[str, str], None] = {}
    missing: dict[tuple[str, str], None] = {}
    for link in links:
        page = pages.get(link.page_id)
        if page is None or not link.paths:
            continue
        target = names.find_page(link.paths, link.wiki, get_folder(page.path))
        if target is None and not is_attachment(link.paths[0], link.wiki):
            missing[page.path, link.paths[0]] = None
        elif target is not None and target != page.path:
            edges[page.path, target] = None
    refs = sorted((PageRef(page.path, page.name) for page in listed), key=lambda ref: ref.path)
    return PageGraph(tuple(refs), tuple(sorted(edges)), tuple(sorted(missing)), state.revision), listed


def _build_name_index(pages: Collection[StoredPage], recipe: Recipe, *paths: str) -> PageNameIndex:
    """The names of these pages and paths, by the dialect of the index."""
    pipeline = TextPipeline.from_recipe(recipe)
    resolution = pipeline.dialect.resolution if pipeline is not None else LinkResolution.BY_PATH
    aliases = {page.path: page.aliases for page in pages if page.aliases}
    return PageNameIndex([*(page.path for page in pages), *paths], resolution=resolution, aliases=aliases)


def _resolve_links(index: WikiIndex, path: str, links: Iterable[Link | StoredLink]) -> PageLinks:
    outgoing = [link for link in links if link.paths]
    own = index.find_page(path)
    own_names = (path, get_last_part(path), *get_other_names(path, own.aliases if own else ()))
    incoming = index.find_links_by_key(list(dict.fromkeys(map(fold_path, own_names))))
    keys = {fold_path(path)} | {fold_path(target_path) for link in (*outgoing, *incoming) for target_path in link.paths}
    known = {page.path: page for page in index.find_pages_by_key(sorted(keys))}
    names = _build_name_index(known.values(), index.get_state().recipe, path)
    links_to: list[PageLink] = []
    missing: dict[str, int] = {}
    for link in outgoing:
        target = names.find_page(link.paths, link.wiki, get_folder(path))
        if target is None and not is_attachment(link.paths[0], link.wiki):
            missing.setdefault(link.paths[0], link.line)
        elif target is not None and target != path and target in known:
            page, anchor = known[target], get_fragment(link.target)
            links_to.append(PageLink(target, page.name, link.text, anchor, link.line, page.aliases))
    backlinks = _find_backlinks(index, path, incoming, names)
    return PageLinks(path, tuple(links_to), backlinks, tuple(missing), tuple(missing.values()))


def _find_backlinks(
    index: WikiIndex, path: str, incoming: Sequence[StoredLink], names: PageNameIndex
) -> tuple[PageLink, ...]:
    pages = index.get_pages(list({link.page_id for link in incoming}))
    page_links = [
        PageLink(page.path, page.name, link.text, get_fragment(link.target), link.line)
        for link in incoming
        if (page := pages.get(link.page_id)) is not None
        and page.path != path
        and names.find_page(link.paths, link.wiki, get_folder(page.path)) == path
    ]
    return tuple(sorted(page_links, key=lambda link: (link.path, link.line)))
