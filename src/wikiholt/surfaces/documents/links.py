"""Links between pages, and what there is to filter by, as documents."""

from collections.abc import Sequence

from typing_extensions import TypedDict

from wikiholt.model import Facet, Facets, PageGraph, PageLinks, StoredPage
from wikiholt.surfaces.documents.names import STORED_PATHS, PathStyle
from wikiholt.surfaces.documents.pages import ListedPageDocument, build_listed_page_document, to_display_paths


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


def build_links_document(links: PageLinks, path_style: PathStyle = STORED_PATHS) -> LinksDocument:
    return {
        "path": path_style.to_display_path(links.path),
        "links_to": to_display_paths(links.links_to, path_style),
        "linked_from": to_display_paths(links.linked_from, path_style),
        "missing": [path_style.to_display_path(path) for path in links.missing],
    }


def build_orphans_document(pages: Sequence[StoredPage], path_style: PathStyle = STORED_PATHS) -> OrphansDocument:
    return {"pages": [build_listed_page_document(page, path_style) for page in pages], "total": len(pages)}


def build_graph_document(graph: PageGraph, path_style: PathStyle = STORED_PATHS) -> GraphDocument:
    return {
        "nodes": [path_style.to_display_path(page.path) for page in graph.pages],
        "edges": _build_edges(graph.edges, path_style),
        "missing": _build_edges(graph.missing, path_style),
        "indexed_revision": graph.indexed_revision,
    }


def _build_edges(pairs: Sequence[tuple[str, str]], path_style: PathStyle) -> list[EdgeDocument]:
    return [{"source": path_style.to_display_path(source), "target": path_style.to_display_path(target)} for source, target in pairs]


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


def build_facets_document(facets: Facets) -> FacetsDocument:
    return {
        "pages": facets.pages,
        "categories": _build_facet_counts(facets.categories),
        "tags": _build_facet_counts(facets.tags),
        "folders": _build_facet_counts(facets.folders),
    }


def _build_facet_counts(facets: Sequence[Facet]) -> list[FacetDocument]:
    return [{"value": facet.value, "count": facet.count} for facet in facets]
