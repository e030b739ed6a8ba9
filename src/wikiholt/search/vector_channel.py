"""Reads vectors for a search: from the vector cache, or from the index if the cache is not ready or fails.

The mean of the passages of a page says what the page as a whole is about.
"""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TypeVar

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows, compute_page_means
from wikiholt.domain.protocols import VectorCache
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import DatabaseUnavailable
from wikiholt.search.search_context import SearchContext

_MAX_CACHED_PAGES = 8_192
"""12 MB of vectors with 384 dimensions."""


class PageMeans:
    """The means of one wiki's pages for caches without means, kept for one version of the index. Safe to use from many
    threads."""

    def __init__(self) -> None:
        self._cache: tuple[int, dict[int, FloatArray]] = (-1, {})

    def get(self, page_ids: IntArray, version: int, read_rows: Callable[[IntArray], VectorRows]) -> FloatArray:
        """The mean of each of these pages (sorted ids)."""
        cached = self._get_cache(version)
        ids = page_ids.tolist()
        missing = page_ids[[page_id not in cached for page_id in ids]]
        if len(missing):
            cached.update(zip(missing.tolist(), compute_page_means(read_rows(missing), missing), strict=True))
        return np.stack([cached[page_id] for page_id in ids])

    def _get_cache(self, version: int) -> dict[int, FloatArray]:
        cached_version, means = self._cache
        if cached_version != version or len(means) > _MAX_CACHED_PAGES:
            # Other threads may use the old ones, so they are replaced and not cleared.
            means = {}
            self._cache = (version, means)
        return means


# The channel.

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_MAX_CHUNKS = 1_000_000
"""More chunks than a hundred pages have."""


class VectorChannel:
    """The nearest passages of one wiki, and the cosines of its pages."""

    def __init__(self, index: WikiIndex, cache: VectorCache | None) -> None:
        self._index = index
        self._cache = cache
        self._page_means = PageMeans()

    def prepare(self, context: SearchContext, found: Collection[int]) -> None:
        """Refresh the vector cache and read the passages of the pages found by keyword while the query is embedded.

        If that fails, the search itself reports it.
        """
        with suppress(Exception):
            if self._cache is not None:
                self._cache.refresh()
                context.refreshed = True
            if found:
                context.found_rows = self._index.read_ahead(np.array(sorted(found), np.int64))

    def search(self, context: SearchContext, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks; with `page_ids` (sorted), only of these pages."""
        hits = self._ask_cache(context, lambda cache: cache.search(vector, limit, page_ids))
        if hits is None:
            return self._index.search_vectors(vector, limit, page_ids)
        if hits.degraded:
            context.degrade("part of the vector cache is unavailable; searched by exact scores")
        return hits

    def search_pages(self, context: SearchContext, vector: FloatArray, page_ids: Collection[int]) -> VectorHits:
        """All passages of these pages, nearest first."""
        return self.search(context, vector, _MAX_CHUNKS, np.array(sorted(page_ids), np.int64))

    def search_found(self, context: SearchContext, vector: FloatArray, found: Collection[int]) -> VectorHits:
        """All passages of the pages found by keyword, nearest first."""
        rows = context.found_rows
        if rows is None:
            return self.search_pages(context, vector, found)
        return VectorHits.rank(rows.chunk_ids, rows.page_ids, np.vecdot(rows.vectors, vector))

    def score_pages(self, context: SearchContext, vector: FloatArray, page_ids: Collection[int]) -> dict[int, float]:
        """Compare the query with the mean of the passages of each page."""
        ids = sorted(page_ids)
        if not ids:
            return {}
        sorted_ids = np.array(ids, np.int64)
        means = self._index.get_page_means(sorted_ids)
        if means is None:
            means = self._page_means.get(
                sorted_ids, context.version, lambda missing: self._index.get_page_vectors(missing.tolist())
            )
        return dict(zip(ids, np.vecdot(means, vector).tolist(), strict=True))

    def _ask_cache(self, context: SearchContext, ask: Callable[[VectorCache], _T]) -> _T | None:
        """The answer of the vector cache, or None if there is none; with a note if it is not ready or fails."""
        if self._cache is None:
            return None
        try:
            if not context.refreshed:
                self._cache.refresh()
                context.refreshed = True
            if self._cache.version is not None:
                return ask(self._cache)
            context.degrade("the vector cache is being built; searched the index directly")
        except DatabaseUnavailable:
            raise
        except Exception as error:  # noqa: BLE001 - a cache may fail in any way; the index answers
            _LOG.warning("the vector cache failed (%s); searching the index", error)
            context.degrade("the vector cache failed; searched the index directly")
        return None
