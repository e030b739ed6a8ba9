"""What a programmer in a hurry might write. Not to be run: a type checker reads it.

A line marked `refused` must not pass; every other line must. The first functions are the seed's incident of 2026-04-21
in our terms: two channels of one search, where one of them was given the tenant and the other was not.
"""

from wikiholt.handle import WikiHandle
from wikiholt.hits import HitMaker
from wikiholt.model import Filter, Floats, Mode, Wiki, WordQuery
from wikiholt.ports import Source, Store, VectorCache, WikiIndex, WordCache
from wikiholt.search import Request, Searcher
from wikiholt.service import Service


def as_it_is_meant(index: WikiIndex, cache: VectorCache, words: WordCache, handle: WikiHandle, vector: Floats) -> None:
    """Both channels of one wiki: there is nothing in them that could be left out."""
    index.words(WordQuery(("pump",)), 50, Filter())
    index.nearest(vector, 50, None)
    cache.search(vector, 50, None)
    words.search(WordQuery(("pump",)), 50, None)
    handle.search(Request("pump", 5, Mode.HYBRID, Filter(tags=("night",))))


def with_the_tenant_on_the_query(index: WikiIndex, cache: VectorCache, words: WordCache, vector: Floats) -> None:
    index.words(WordQuery(("pump",)), 50, Filter(), "acme")  # refused: call-arg
    index.words(WordQuery(("pump",)), 50, Filter(), wiki="acme")  # refused: call-arg
    index.nearest(vector, 50, None, tenant_id="acme")  # refused: call-arg
    index.holding(WordQuery(("pump",)), wiki_id="acme")  # refused: call-arg
    index.allowed(Filter(), "acme")  # refused: call-arg
    index.stored_pages([1, 2], "acme")  # refused: call-arg
    cache.search(vector, 50, None, "acme")  # refused: call-arg
    words.search(WordQuery(("pump",)), 50, None, slug="acme")  # refused: call-arg


def with_the_tenant_in_the_filter() -> None:
    Filter(wiki="acme")  # refused: call-arg
    WordQuery(("pump",), wiki="acme")  # refused: call-arg
    Request("pump", wiki="acme")  # refused: call-arg


def with_no_wiki_at_all(service: Service, store: Store, vector: Floats, request: Request) -> None:
    """To search whatever there is: nothing that knows all wikis can search."""
    service.search(request)  # refused: attr-defined
    store.words(WordQuery(("pump",)), 50, Filter())  # refused: attr-defined
    store.nearest(vector, 50, None)  # refused: attr-defined
    service.wiki()  # refused: call-arg
    store.open()  # refused: call-arg
    HitMaker(store, "{path}", "english")  # refused: arg-type


def with_another_wiki(service: Service, handle: WikiHandle, other: Wiki, request: Request, index: WikiIndex) -> None:
    """To reach from one wiki into another."""
    handle.wiki = other  # refused: misc
    handle.search("acme", request)  # refused: call-arg, arg-type
    handle.search(request, wiki=other)  # refused: call-arg
    handle.sync("acme")  # refused: arg-type
    service.wiki("acme").search(request)
    index.open("acme")  # refused: attr-defined
    index.attach("acme")  # refused: attr-defined


def a_search_of_many(indexes: list[WikiIndex], searcher: Searcher, source: Source, request: Request) -> None:
    HitMaker(indexes, "{path}", "english")  # refused: arg-type
    searcher.search(request, indexes)  # refused: call-arg
    source.tree("0" * 40, "acme")  # refused: call-arg
