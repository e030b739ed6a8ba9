"""The keyword channel of a search, answered by the cache if it can, and the pages that a search may return."""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np

from wikiholt.domain.index import IntArray
from wikiholt.domain.protocols import KeywordCache
from wikiholt.domain.search import KeywordQuery, PageFilter, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import CacheCannotAnswer, DatabaseUnavailable
from wikiholt.search.query import InterpretedQuery, KeywordScores
from wikiholt.search.request import SearchRequest
from wikiholt.search.search_context import SearchContext

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")
_MAX_CACHED_FILTERS = 16


class KeywordChannel:
    """Keyword search in one wiki. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, cache: KeywordCache | None) -> None:
        self._index = index
        self._cache = cache

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        """The sorted ids of the pages with every phrase and no excluded phrase."""
        return self._index.find_matching_page_ids(query)

    def compute_shares(self, context: SearchContext, depth: int) -> dict[int, float]:
        """Page id → share of the best possible keyword score, of the best `depth` pages by each variant. Best first."""
        interpreted = context.interpreted
        # `allowed` already leaves out pages with exclusions.
        shares = self._ask_cache(
            lambda cache: interpreted.compute_shares(
                KeywordScores(
                    lambda query: cache.search(replace(query, excluded=()), depth, context.allowed),
                    lambda query: cache.get_max_score(replace(query, excluded=())),
                    self.find_matching_page_ids,
                    context.page_count,
                )
            ),
            lambda: context.degrade("the keyword cache failed; searched the index directly"),
        )
        if shares is not None:
            return shares
        return interpreted.compute_shares(
            KeywordScores(
                lambda query: self._index.search_keywords(query, depth, context.request.where),
                self._index.get_max_keyword_score,
                self._index.find_matching_page_ids,
                context.page_count,
            )
        )

    def _ask_cache(self, ask: Callable[[KeywordCache], _T], report_failure: Callable[[], None]) -> _T | None:
        """The answer of the cache, or None if it is not ready, cannot answer or fails."""
        if self._cache is None:
            return None
        try:
            self._cache.refresh()
            if self._cache.version is not None:
                return ask(self._cache)
        except CacheCannotAnswer:
            pass
        except DatabaseUnavailable:
            raise  # the index needs the same database
        except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the index answers
            _LOG.warning("the keyword cache failed (%s); searching the index", error)
            report_failure()
        return None


class AllowedPages:
    """Finds the pages that a search of one wiki may return. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, keywords: KeywordChannel) -> None:
        self._index = index
        self._keywords = keywords
        self._filtered: tuple[int, dict[PageFilter, IntArray | None]] = (-1, {})
        """The pages that pass recent filters, at one version of the index."""

    def find(self, request: SearchRequest, interpreted: InterpretedQuery, version: int) -> IntArray | None:
        """The pages that pass the filter, contain the phrases and do not contain the exclusions; None for all."""
        allowed = self._filter_pages(request.where, version)
        requirements = interpreted.get_requirements(phrases=request.mode is not SearchMode.SEMANTIC)
        if not requirements:
            return allowed
        matching = reduce(np.union1d, map(self._keywords.find_matching_page_ids, requirements))
        return matching if allowed is None else np.intersect1d(allowed, matching, assume_unique=True)

    def count_excluded(self, request: SearchRequest, interpreted: InterpretedQuery, version: int) -> int:
        """The number of pages that only the exclusions of the query leave out."""
        excluded = interpreted.query.excluded
        if not excluded:
            return 0
        found = (self._keywords.find_matching_page_ids(KeywordQuery(phrases=(phrase,))) for phrase in excluded)
        left_out = reduce(np.union1d, found)
        others = self.find(request, interpreted.without_exclusions(), version)
        return len(left_out if others is None else np.intersect1d(left_out, others, assume_unique=True))

    def is_empty(self, where: PageFilter, version: int) -> bool:
        """Whether no page passes the filter."""
        allowed = self._filter_pages(where, version)
        return allowed is not None and not len(allowed)

    def _filter_pages(self, where: PageFilter, version: int) -> IntArray | None:
        """The pages that pass the filter; None for all. More hits, and often the next query, have the same filter."""
        filtered_version, known = self._filtered
        if filtered_version != version or len(known) >= _MAX_CACHED_FILTERS:
            # Other threads may read the old ones, so they are replaced and not cleared.
            known = {}
            self._filtered = (version, known)
        if where not in known:
            known[where] = self._index.filter_page_ids(where)
        return known[where]
