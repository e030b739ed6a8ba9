"""The read path of one wiki: what is asked, and how the index, its caches and the model answer it."""

from wikiholt.search.request import MAX_CHUNKS_PER_PAGE, MAX_HITS, MAX_QUERY_CHARS, SearchRequest
from wikiholt.search.reranking import RerankConfig
from wikiholt.search.searcher import Searcher

__all__ = ["MAX_CHUNKS_PER_PAGE", "MAX_HITS", "MAX_QUERY_CHARS", "SearchRequest", "RerankConfig", "Searcher"]
