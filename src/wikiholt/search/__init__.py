"""The read path of one wiki: what is asked, and how the index, its caches and the model answer it."""

from wikiholt.search.request import MAX_CHUNKS, MAX_HITS, MAX_QUERY, Request
from wikiholt.search.reranking import Reranking
from wikiholt.search.searcher import Searcher

__all__ = ["MAX_CHUNKS", "MAX_HITS", "MAX_QUERY", "Request", "Reranking", "Searcher"]
