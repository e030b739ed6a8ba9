"""Mistakes that a programmer could make. This file is not run: `make lint` lets mypy read it.

mypy must reject each line with `type: ignore`, or it reports that the mark is not needed; every other line must pass.
The first functions repeat the incident of 2026-04-21: a search in two channels, of which one did not get the tenant.
"""

from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import KeywordCache, Source, VectorCache
from wikiholt.domain.search import KeywordQuery, PageFilter, SearchMode
from wikiholt.domain.storage_protocols import IndexStore, WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.search.index_reader import IndexView
from wikiholt.search.request import SearchRequest
from wikiholt.search.searcher import Searcher
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.service import WikiService


def correct_use(
    index: WikiIndex, cache: VectorCache, words: KeywordCache, handle: WikiHandle, vector: FloatArray
) -> None:
    """Both channels of one wiki: there is no parameter for a wiki to omit."""
    index.search_keywords(KeywordQuery(("pump",)), 50, PageFilter())
    index.search_vectors(vector, 50, None)
    cache.search(vector, 50, None)
    words.search(KeywordQuery(("pump",)), 50, None)
    handle.search(SearchRequest("pump", 5, SearchMode.HYBRID, PageFilter(tags=("night",))))


def with_the_tenant_on_the_query(index: WikiIndex, cache: VectorCache, words: KeywordCache, vector: FloatArray) -> None:
    index.search_keywords(KeywordQuery(("pump",)), 50, PageFilter(), "acme")  # type: ignore[call-arg]
    index.search_keywords(KeywordQuery(("pump",)), 50, PageFilter(), wiki="acme")  # type: ignore[call-arg]
    index.search_vectors(vector, 50, None, tenant_id="acme")  # type: ignore[call-arg]
    index.find_matching_page_ids(KeywordQuery(("pump",)), wiki_id="acme")  # type: ignore[call-arg]
    index.filter_page_ids(PageFilter(), "acme")  # type: ignore[call-arg]
    index.get_pages([1, 2], "acme")  # type: ignore[call-arg]
    cache.search(vector, 50, None, "acme")  # type: ignore[call-arg]
    words.search(KeywordQuery(("pump",)), 50, None, slug="acme")  # type: ignore[call-arg]


def with_the_tenant_in_the_filter() -> None:
    PageFilter(wiki="acme")  # type: ignore[call-arg]
    KeywordQuery(("pump",), wiki="acme")  # type: ignore[call-arg]
    SearchRequest("pump", wiki="acme")  # type: ignore[call-arg]


def with_no_wiki_at_all(service: WikiService, store: IndexStore, vector: FloatArray, request: SearchRequest) -> None:
    """Searching all wikis: no type that knows all wikis can search."""
    service.search(request)  # type: ignore[attr-defined]
    store.search_keywords(KeywordQuery(("pump",)), 50, PageFilter())  # type: ignore[attr-defined]
    store.search_vectors(vector, 50, None)  # type: ignore[attr-defined]
    service.get_handle()  # type: ignore[call-arg]
    store.open()  # type: ignore[call-arg]
    IndexView(store, "english")  # type: ignore[arg-type]


def with_another_wiki(
    service: WikiService, handle: WikiHandle, other: Wiki, request: SearchRequest, index: WikiIndex
) -> None:
    """Reading another wiki through the handle of one."""
    handle.wiki = other  # type: ignore[misc]
    handle.search("acme", request)  # type: ignore[call-arg, arg-type]
    handle.search(request, wiki=other)  # type: ignore[call-arg]
    handle.sync("acme")  # type: ignore[arg-type]
    service.get_handle("acme").search(request)
    index.open("acme")  # type: ignore[attr-defined]
    index.attach("acme")  # type: ignore[attr-defined]


def with_many_indexes(indexes: list[WikiIndex], searcher: Searcher, source: Source, request: SearchRequest) -> None:
    IndexView(indexes, "english")  # type: ignore[arg-type]
    searcher.search(request, indexes)  # type: ignore[call-arg, arg-type]
    source.read_tree("0" * 40, "acme")  # type: ignore[call-arg]
