"""Links between pages, and what there is to filter by, as documents."""

from collections.abc import Sequence

from typing_extensions import TypedDict

from wikiholt.model import Facet, Facets, PageGraph, PageLinks, StoredPage
from wikiholt.surfaces.documents.names import AS_STORED, Names
from wikiholt.surfaces.documents.pages import ListedPageDocument, listed_page_document, paths


class LinksDocument(TypedDict):
    """The pages a page links to, those that link to it, and paths it links to that are no page."""

    path: str
    links_to: list[str]
    linked_from: list[str]
    missing: list[str]


class OrphansDocument(TypedDict):
    """Pages that no other page links to."""

    pages: list[ListedPageDocument]
    total: int


class EdgeDocument(TypedDict):
    """A link from one page to another."""

    source: str
    target: str


class GraphDocument(TypedDict):
    """All pages and the links between them; `missing` are links to what is no page."""

    nodes: list[str]
    edges: list[EdgeDocument]
    missing: list[EdgeDocument]
    indexed_revision: str | None


def links_document(links: PageLinks, names: Names = AS_STORED) -> LinksDocument:
    return {
        "path": names.shown(links.path),
        "links_to": paths(links.links_to, names),
        "linked_from": paths(links.linked_from, names),
        "missing": [names.shown(path) for path in links.missing],
    }


def orphans_document(pages: Sequence[StoredPage], names: Names = AS_STORED) -> OrphansDocument:
    return {"pages": [listed_page_document(page, names) for page in pages], "total": len(pages)}


def graph_document(graph: PageGraph, names: Names = AS_STORED) -> GraphDocument:
    return {
        "nodes": [names.shown(page.path) for page in graph.pages],
        "edges": _edges(graph.edges, names),
        "missing": _edges(graph.missing, names),
        "indexed_revision": graph.indexed_revision,
    }


def _edges(pairs: Sequence[tuple[str, str]], names: Names) -> list[EdgeDocument]:
    return [{"source": names.shown(source), "target": names.shown(target)} for source, target in pairs]


class FacetDocument(TypedDict):
    """A value that filters may name, and how many pages have it."""

    value: str
    count: int


class FacetsDocument(TypedDict):
    """What there is to filter by, the most frequent first."""

    pages: int
    categories: list[FacetDocument]
    tags: list[FacetDocument]
    folders: list[FacetDocument]


def facets_document(facets: Facets) -> FacetsDocument:
    return {
        "pages": facets.pages,
        "categories": _counts(facets.categories),
        "tags": _counts(facets.tags),
        "folders": _counts(facets.folders),
    }


def _counts(facets: Sequence[Facet]) -> list[FacetDocument]:
    return [{"value": facet.value, "count": facet.count} for facet in facets]
