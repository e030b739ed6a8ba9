"""The means of the passages of pages, which say what a page as a whole is about."""

from collections.abc import Callable

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, VectorRows

_MAX_CACHED_PAGES = 8_192
"""12 MB of vectors with 384 dimensions."""
_MIN_LENGTH = 1e-6


def compute_page_means(rows: VectorRows, page_ids: IntArray) -> FloatArray:
    """The mean of the rows of each page (sorted ids) as a unit vector; zeros for a page without rows."""
    means = np.zeros((len(page_ids), rows.vectors.shape[1]), np.float32)
    if not len(rows.page_ids):
        return means
    order = np.lexsort((rows.chunk_ids, rows.page_ids))
    # Rows of a cache mostly have this order already, and copying them takes as long as adding them.
    vectors = rows.vectors if bool((order[1:] > order[:-1]).all()) else rows.vectors[order]
    found, starts = np.unique(rows.page_ids[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    # In half of the time of `reduceat`.
    sums = np.stack([vectors[start:end].sum(axis=0) for start, end in zip(starts.tolist(), ends, strict=True)])
    lengths = np.maximum(np.sqrt(np.vecdot(sums, sums)), _MIN_LENGTH)
    means[np.searchsorted(page_ids, found)] = sums / lengths[:, None]
    return means


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
