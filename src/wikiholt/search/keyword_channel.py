"""The keyword channel of a search: the cache answers if it can, else the index."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from wikiholt.domain.index import IntArray
from wikiholt.domain.protocols import KeywordCache
from wikiholt.domain.search import KeywordQuery
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import CacheCannotAnswer, DatabaseUnavailable
from wikiholt.search.search_context import SearchContext

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")


class KeywordChannel:
    """Keyword search in one wiki. Safe to use from many threads."""

    def __init__(self, index: WikiIndex, cache: KeywordCache | None) -> None:
        self._index = index
        self._cache = cache

    def find_matching_page_ids(self, query: KeywordQuery) -> IntArray:
        """The sorted ids of the pages with every phrase and no excluded phrase."""
        found = self._ask_cache(lambda cache: cache.find_matching_page_ids(query), lambda: None)
        return self._index.find_matching_page_ids(query) if found is None else found

    def compute_shares(self, context: SearchContext, depth: int) -> dict[int, float]:
        """Page id → share of the best possible keyword score, for the best `depth` pages."""
        interpreted = context.interpreted
        # `allowed` already leaves out pages with exclusions.
        shares = self._ask_cache(
            lambda cache: interpreted.compute_shares(
                lambda query: cache.search(replace(query, excluded=()), depth, context.allowed),
                lambda query: cache.get_max_score(replace(query, excluded=())),
            ),
            lambda: context.degrade("the keyword cache failed; searched the index directly"),
        )
        if shares is not None:
            return shares
        return interpreted.compute_shares(
            lambda query: self._index.search_keywords(query, depth, context.request.where),
            self._index.get_max_keyword_score,
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
