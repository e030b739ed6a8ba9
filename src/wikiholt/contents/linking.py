"""How the pages of one wiki hang together, as its index knows them."""

from collections.abc import Iterable, Mapping, Sequence

from wikiholt.contents.locating import OpenIndex
from wikiholt.errors import InvalidQuery
from wikiholt.model import (
    Facets,
    Filter,
    Link,
    PageGraph,
    PageLink,
    PageLinks,
    PageList,
    PageRef,
    StoredLink,
    StoredPage,
)
from wikiholt.ports import WikiIndex
from wikiholt.text.links import Names, folded, fragment, is_attachment, last_part

_EVERY = Filter()


class Linking:
    """Lists pages and follows links, by the index."""

    def __init__(self, index: OpenIndex) -> None:
        self._index = index

    def list(self, where: Filter, limit: int | None, offset: int) -> PageList:
        where.check()
        if offset < 0 or (limit is not None and limit < 0):
            raise InvalidQuery("limit and offset count pages", hint="use numbers from 0 on")
        with self._index() as index:
            total, pages = index.list_pages(where, limit, offset)
            return PageList(tuple(pages), total, index.state().revision)

    def facets(self, where: Filter) -> Facets:
        where.check()
        with self._index() as index:
            return index.facets(where)

    def links(self, path: str) -> PageLinks:
        """The links on a page as it was indexed, and those to it."""
        with self._index() as index:
            page = index.find_page(path)
            found = index.links([page.page_id]) if page else ()
            return _links(index, path, found)

    def links_of(self, path: str, written: Iterable[Link]) -> PageLinks:
        """The links that are written on a page, whether it is indexed so or not, and those to it."""
        with self._index() as index:
            return _links(index, path, written)

    def graph(self) -> PageGraph:
        with self._index() as index:
            pages, found = _whole(index)
            revision = index.state().revision
        names = Names(page.path for page in pages.values())
        edges: dict[tuple[str, str], None] = {}
        missing: dict[tuple[str, str], None] = {}
        for link in found:
            page = pages.get(link.page_id)
            if page is None or not link.paths:
                continue
            target = names.page(link.paths, link.wiki)
            if target is None and not is_attachment(link.paths[0], link.wiki):
                missing[page.path, link.paths[0]] = None
            elif target is not None and target != page.path:
                edges[page.path, target] = None
        refs = sorted((PageRef(page.path, page.name) for page in pages.values()), key=lambda ref: ref.path)
        return PageGraph(tuple(refs), tuple(sorted(edges)), tuple(sorted(missing)), revision)

    def orphans(self) -> Sequence[StoredPage]:
        linked = {target for _, target in self.graph().edges}
        return [page for page in self.list(_EVERY, None, 0).pages if page.path not in linked]


def _whole(index: WikiIndex) -> tuple[Mapping[int, StoredPage], Sequence[StoredLink]]:
    _, pages = index.list_pages(_EVERY, None)
    return {page.page_id: page for page in pages}, index.links()


def _links(index: WikiIndex, path: str, written: Iterable[Link | StoredLink]) -> PageLinks:
    leaving = [link for link in written if link.paths]
    coming = index.links_naming(list({folded(path), folded(last_part(path))}))
    keys = {folded(path)} | {folded(aim) for link in (*leaving, *coming) for aim in link.paths}
    known = {page.path: page for page in index.named(sorted(keys))}
    names = Names([*known, path])
    links_to: list[PageLink] = []
    missing: dict[str, None] = {}
    for link in leaving:
        target = names.page(link.paths, link.wiki)
        if target is None and not is_attachment(link.paths[0], link.wiki):
            missing[link.paths[0]] = None
        elif target is not None and target != path and target in known:
            links_to.append(PageLink(target, known[target].name, link.text, fragment(link.target), link.line))
    return PageLinks(path, tuple(links_to), _linked_from(index, path, coming, names), tuple(missing))


def _linked_from(index: WikiIndex, path: str, coming: Sequence[StoredLink], names: Names) -> tuple[PageLink, ...]:
    here = [link for link in coming if names.page(link.paths, link.wiki) == path]
    pages = index.stored_pages(list({link.page_id for link in here}))
    found = [
        PageLink(pages[link.page_id].path, pages[link.page_id].name, link.text, fragment(link.target), link.line)
        for link in here
        if link.page_id in pages and pages[link.page_id].path != path
    ]
    return tuple(sorted(found, key=lambda link: (link.path, link.line)))
