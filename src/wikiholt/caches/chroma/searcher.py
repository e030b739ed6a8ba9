"""Vector search of one wiki with Chroma: it proposes records, and exact search scores the pages that have them.

A reply of Chroma is never trusted. While Chroma is unavailable, slow or wrong, exact search answers, marked `degraded`;
while the collection follows an edit, exact search answers too.
"""

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wikiholt.caches.chroma.client import ChromaError, ChromaUnavailable
from wikiholt.caches.chroma.collection import Cancelled, CollectionSync, ReadyCollection
from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.protocols import VectorCache
from wikiholt.domain.storage_protocols import WikiIndex

if TYPE_CHECKING:
    from wikiholt.caches.chroma.engine import ChromaEngine

MAX_CHROMA_LIMIT = 1000
"""Searches for more neighbours than this are answered by exact search."""
_EXTRA_ROWS = 20
"""Rows requested beyond the limit, because Chroma may miss some."""
_COMPLETE_ROWS = 256
"""A query of a collection up to this size asks for all rows: the graph may lose rows, and then the number tells."""
_MIN_RETURNED_SHARE = 0.9
_CHECK_INTERVAL_S, _RECONNECT_CHECK_INTERVAL_S = 900.0, 60.0
"""Minimum seconds between two checks of a collection in use: scheduled, and after a new connection."""


class ChromaSearcher:
    """A `VectorCache` over one index and its collection. `exact` scores rows."""

    def __init__(
        self, engine: "ChromaEngine", index: WikiIndex, exact: VectorCache, collection: CollectionSync
    ) -> None:
        self._engine = engine
        self._index = index
        self._exact = exact
        self._collection = collection
        self._ready: ReadyCollection | None = None
        self._version = -1
        self._checked_at = time.monotonic()
        self._is_first_refresh = True
        self.is_closed = False
        self.retry_at = 0.0
        """When the collection may be synced again after an error; `errors` in a row."""
        self.errors = 0
        self.idle = threading.Event()
        """Set unless the engine syncs the collection or is about to."""
        self.idle.set()

    @property
    def version(self) -> int | None:
        return self._exact.version

    def refresh(self) -> None:
        """Bring the exact search to the index's version, and the collection in the background."""
        self._exact.refresh()
        self._version = self._index.get_version()
        if time.monotonic() - self._checked_at > _CHECK_INTERVAL_S:
            self._request_check()
        elif self._ready is None or self._ready.version != self._version:
            self._engine.enqueue(self)
        if self._is_first_refresh:
            # Wait once, so that a command that searches once can use Chroma.
            self._is_first_refresh = False
            self.idle.wait(self._engine.config.timeout_s)

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """Return the nearest chunks, only of these pages if given: without Chroma, whose filters lose neighbours."""
        ready = self._ready
        if ready is None:
            self._engine.metrics.add("fallbacks")
        elif page_ids is None and limit <= MAX_CHROMA_LIMIT and ready.version == self._version:
            try:
                page_ids = self._propose_pages(ready, np.ascontiguousarray(vector, np.float32), limit)
            except (ChromaUnavailable, ChromaError) as error:
                self._engine.metrics.add_failure(error)
                self._engine.metrics.add("fallbacks")
                self._ready = ready = None
                if isinstance(error, ChromaError):
                    self._collection.request_check()
                self._engine.enqueue(self)
        hits = self._exact.search(vector, limit, page_ids)
        return hits if ready is not None else replace(hits, degraded=True)

    def _propose_pages(self, ready: ReadyCollection, vector: FloatArray, limit: int) -> IntArray | None:
        """Return the pages of the records that Chroma finds; None if too few are certain."""
        count = len(ready.chunk_ids)
        row_limit = min(max(limit + _EXTRA_ROWS, _COMPLETE_ROWS), count)
        if not row_limit:
            return None
        (names,), reply = ready.records.search(vector[None], row_limit, self._engine.config.timeout_s)
        if reply.instance_id != ready.instance_id:
            raise ChromaUnavailable("Chroma is not the process that was verified.")
        is_other_server = reply.is_new_connection and not reply.instance_id
        if is_other_server and time.monotonic() - self._checked_at > _RECONNECT_CHECK_INTERVAL_S:
            self._request_check()
        found, page_ids = ready.find_pages(names)
        if found < _MIN_RETURNED_SHARE * row_limit:
            raise ChromaError("Chroma returns fewer rows than the collection has.")
        self._engine.metrics.add("queries")
        # Rows that Chroma misses must not be hidden by others of their pages that make up for their number.
        return None if found < row_limit == count else page_ids

    def read_ahead(self, page_ids: IntArray) -> VectorRows | None:
        """Return every chunk of these pages with its vector, if that is useful."""
        return self._exact.read_ahead(page_ids)

    def get_page_means(self, page_ids: IntArray) -> FloatArray | None:
        """Return the mean of the vectors of each of these pages."""
        return self._exact.get_page_means(page_ids)

    def verify(self) -> None:
        """Schedule a check of the collection, and verify what exact search reads."""
        self._request_check()
        self._exact.verify()

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        return self._exact.wait_idle(timeout_s) and self.idle.wait(timeout_s)

    def close(self) -> None:
        self.is_closed = True
        self._engine.wait_for_cancellation(self)
        self._ready = None
        self._exact.close()

    def sync(self, instance_id: str) -> None:
        """Make the collection equal to the index, for the engine's thread; searches use it from then on."""
        self._ready = None if self._ready is None or self._ready.instance_id != instance_id else self._ready
        self._ready = self._collection.sync(self._engine.client, instance_id, self._check_stop)

    def stop_using_collection(self) -> None:
        """Search exactly until the next sync."""
        self._ready = None

    def _check_stop(self) -> None:
        if self.is_closed or self._engine.is_closing:
            raise Cancelled

    def _request_check(self) -> None:
        """Check the collection in the background. Searches keep using it."""
        self._checked_at = time.monotonic()
        self._collection.request_check()
        self._engine.enqueue(self)
