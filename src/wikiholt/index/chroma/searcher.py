"""Vector search of one wiki with Chroma: it proposes records, and the index scores their chunks exactly.

A reply of Chroma is never trusted. While Chroma is unavailable, slow or wrong, exact search answers, marked `degraded`;
while the collection follows an edit, exact search answers too.
"""

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.index.chroma.client import ChromaError, ChromaUnavailable
from wikiholt.index.chroma.collection import Cancelled, CollectionSync, ReadyCollection
from wikiholt.index.sqlite.index import SqliteIndex

if TYPE_CHECKING:
    from wikiholt.index.chroma.engine import ChromaEngine

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
    """A `VectorCache` over one index and its collection."""

    def __init__(self, engine: "ChromaEngine", index: SqliteIndex, collection: CollectionSync) -> None:
        self._engine = engine
        self._index = index
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
        return self._index.get_version()

    def refresh(self) -> None:
        """Bring the collection to the index's version in the background."""
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
        if page_ids is not None or limit > MAX_CHROMA_LIMIT:
            return self._index.search_vectors(vector, limit, page_ids)
        if ready is not None:
            try:
                chunk_ids = self._propose_chunks(ready, np.ascontiguousarray(vector, np.float32), limit)
                if chunk_ids is not None:
                    return self._index.score_chunks(vector, chunk_ids, limit)
                return self._index.search_vectors(vector, limit, None)
            except (ChromaUnavailable, ChromaError) as error:
                self._engine.metrics.add_failure(error)
                self._ready = None
                if isinstance(error, ChromaError):
                    self._collection.request_check()
                self._engine.enqueue(self)
        self._engine.metrics.add("fallbacks")
        return replace(self._index.search_vectors(vector, limit, None), degraded=True)

    def _propose_chunks(self, ready: ReadyCollection, vector: FloatArray, limit: int) -> IntArray | None:
        """Return the chunks that Chroma finds; None if they may not be the nearest."""
        count = len(ready.chunks_by_record)
        row_limit = min(max(limit + _EXTRA_ROWS, _COMPLETE_ROWS), count)
        if not row_limit or ready.version != self._version:
            return None
        (names,), reply = ready.records.search(vector[None], row_limit, self._engine.config.timeout_s)
        if reply.instance_id != ready.instance_id:
            raise ChromaUnavailable("Chroma is not the process that was verified.")
        is_other_server = reply.is_new_connection and not reply.instance_id
        if is_other_server and time.monotonic() - self._checked_at > _RECONNECT_CHECK_INTERVAL_S:
            self._request_check()
        chunk_ids = ready.get_chunk_ids(names)
        if len(chunk_ids) < _MIN_RETURNED_SHARE * row_limit:
            raise ChromaError("Chroma returns fewer rows than the collection has.")
        self._engine.metrics.add("queries")
        # Rows that Chroma misses must not be hidden by farther ones that make up for their number.
        return None if len(chunk_ids) < row_limit == count else chunk_ids

    def verify(self) -> None:
        """Schedule a check of the collection."""
        self._request_check()

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        return self.idle.wait(timeout_s)

    def close(self) -> None:
        self.is_closed = True
        self._engine.wait_for_cancellation(self)
        self._ready = None

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
