"""The vector cache of one wiki with Chroma: Chroma returns candidates, which are scored exactly.

Results of Chroma are never trusted, only used as candidates; chunks
newer than the collection are scored too. While Chroma is unavailable, slow or wrong, an exact search answers, marked
`degraded`. A search waits for Chroma at most its timeout; after a timeout no search uses Chroma until the collection is
verified again.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from wikiholt.caches.chroma.client import ChromaError, ChromaMetrics, ChromaUnavailable
from wikiholt.caches.chroma.collection import (
    EXTRA_NEIGHBOURS,
    SAME_ROW_DISTANCE,
    CollectionOwner,
    CollectionSync,
    VerifiedCollection,
)
from wikiholt.caches.chroma.rest_api import ChromaApi, NearestRows
from wikiholt.caches.chroma.sync_worker import CollectionSyncWorker
from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.domain.storage_protocols import WikiIndex

MAX_CHROMA_LIMIT = 1000
"""Searches for more neighbours than this are answered by exact search."""
_COMPLETE_ROWS = 256
"""A query of a collection up to this size asks for all rows: the graph may lose rows, and then the number tells."""
_PROBE_EVERY_SEARCHES, _PROBE_ROWS = 16, 4
"""Every 16th search, and the first on a new connection, also queries a few known rows to check that they are found."""

_MIN_RETURNED_SHARE = 0.9
_CHECK_INTERVAL_S, _RECONNECT_CHECK_INTERVAL_S = 900.0, 60.0
"""Minimum seconds between two checks of a collection in use: scheduled, and after a new connection."""


class ChromaVectorCache:
    """A `VectorCache` over one index and its collection."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        owner: CollectionOwner,
        worker: CollectionSyncWorker,
        *,
        timeout_s: float,
        is_published: Callable[[], bool] = lambda: True,
    ) -> None:
        self._index = index
        self._worker = worker
        self._timeout_s = timeout_s
        self._metrics: ChromaMetrics = worker.metrics
        self._collection = CollectionSync(index, directory, owner, worker.metrics, worker.get_wiki_ids, is_published)
        self._checked_at = time.monotonic()
        self._verified: VerifiedCollection | None = None
        self._search_counter = itertools.count()
        self._is_first_refresh = True
        self._lock = threading.Lock()

    @property
    def version(self) -> int | None:
        return self._index.get_version()

    def refresh(self) -> None:
        """Update the collection in the background."""
        verified = self._verified
        if verified is None or verified.version != self._index.get_version():
            self._worker.enqueue(self)
        elif time.monotonic() - self._checked_at > _CHECK_INTERVAL_S:
            self._schedule_check()
        if self._is_first_refresh:
            # Wait once, so that a command that searches once can use Chroma.
            self._is_first_refresh = False
            self._worker.wait(self, self._timeout_s)
        self._track_new_chunks()

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """Return the nearest chunks, only of these pages if given.

        A page filter is answered by exact search, because a filter in Chroma loses neighbours.
        """
        if page_ids is not None or limit > MAX_CHROMA_LIMIT:
            return self._index.search_vectors(vector, limit, page_ids)
        verified = self._verified
        if verified is not None:
            try:
                return self._search_chroma(verified, np.ascontiguousarray(vector, np.float32), limit)
            except (ChromaUnavailable, ChromaError) as error:
                self._metrics.add_failure(error)
                self._drop_verified(verified, is_error=isinstance(error, ChromaError))
        self._metrics.add("fallbacks")
        return replace(self._index.search_vectors(vector, limit, None), degraded=True)

    def verify(self) -> None:
        """Schedule a check of the collection."""
        self._schedule_check()

    def wait_idle(self, timeout_s: float | None = None) -> bool:
        return self._worker.wait(self, timeout_s)

    def close(self) -> None:
        self._worker.remove(self)
        self._verified = None

    # ── for the sync worker ──────────────────────────────────────────────────────────────────────

    def sync_collection(self, api: ChromaApi, instance_id: str, should_stop: Callable[[], bool]) -> None:
        """Make the collection equal to the index; searches use it from then on."""
        self._verified = self._collection.sync(api, instance_id, should_stop)

    def mark_unavailable(self) -> None:
        """Stop using Chroma until the next sync."""
        self._verified = None

    def is_behind(self) -> bool:
        """Whether the collection needs another sync."""
        verified = self._verified
        return verified is None or verified.version != self._index.get_version()

    # ── searching ────────────────────────────────────────────────────────────────────────────────

    def _search_chroma(self, verified: VerifiedCollection, vector: FloatArray, limit: int) -> VectorHits:
        """Score the candidates of Chroma and the newer chunks; if that gives too few hits, search exactly."""
        row_limit = min(max(limit + EXTRA_NEIGHBOURS, _COMPLETE_ROWS), verified.row_count)
        if row_limit == 0:
            return self._index.search_vectors(vector, limit, None)
        is_probing = next(self._search_counter) % _PROBE_EVERY_SEARCHES == 0
        probes = self._index.sample_vectors(_PROBE_ROWS).vectors if is_probing else vector[:0]
        nearest = self._query_with_probes(verified, vector, probes.reshape(-1, len(vector)), row_limit)
        if nearest.is_new_connection:
            self._probe_connection(verified, vector)
        chunk_ids = self._collection.to_chunk_ids(nearest.rows[0])
        if len(chunk_ids) < _MIN_RETURNED_SHARE * row_limit:
            raise ChromaError("Chroma returns fewer rows than the collection has.")
        hits = self._index.score_chunks(vector, np.union1d(chunk_ids, verified.new_chunk_ids), limit)
        self._metrics.add("queries")
        # Rows that Chroma misses must not be hidden by farther or newer chunks that make up for their number.
        is_row_missing = row_limit == verified.row_count and len(chunk_ids) < row_limit
        if is_row_missing or len(hits.chunk_ids) < min(limit, verified.row_count + len(verified.new_chunk_ids)):
            return self._index.search_vectors(vector, limit, None)
        return hits

    def _probe_connection(self, verified: VerifiedCollection, vector: FloatArray) -> None:
        """Probe known rows and schedule a check: a new connection may lead to another server."""
        self._query_with_probes(verified, vector, self._index.sample_vectors(_PROBE_ROWS).vectors, 1)
        if not verified.instance_id and time.monotonic() - self._checked_at > _RECONNECT_CHECK_INTERVAL_S:
            self._schedule_check()

    def _schedule_check(self) -> None:
        """Schedule a background check of the collection. Searches keep using it."""
        self._checked_at = time.monotonic()
        self._collection.request_check()
        self._worker.enqueue(self)

    def _query_with_probes(
        self, verified: VerifiedCollection, vector: FloatArray, probes: FloatArray, row_limit: int
    ) -> NearestRows:
        """Query the neighbours of a vector and of known rows.

        Raises ChromaError if a known row does not find itself, ChromaUnavailable if another process answers.
        """
        vectors = np.concatenate((vector[None], probes))
        nearest = verified.collection.search(
            vectors, row_limit, with_metadata=self._collection.uses_metadata, timeout_s=self._timeout_s
        )
        if nearest.instance_id != verified.instance_id:
            raise ChromaUnavailable("Chroma is not the process that was verified.")
        for probe, rows in zip(probes, nearest.rows[1:], strict=True):
            hits = self._index.score_chunks(probe, self._collection.to_chunk_ids(rows), 1)
            if not len(hits.distances) or hits.distances[0] > SAME_ROW_DISTANCE:
                raise ChromaError("Chroma does not find a known row.")
        return nearest

    def _track_new_chunks(self) -> None:
        """Record which chunks are newer than the collection."""
        verified = self._verified
        if verified is None or verified.version == self._index.get_version():
            return
        delta = self._index.get_vector_changes(verified.version)
        with self._lock:
            if self._verified is verified:
                self._verified = None if delta is None else replace(verified, new_chunk_ids=delta.added.chunk_ids)

    def _drop_verified(self, verified: VerifiedCollection, *, is_error: bool) -> None:
        with self._lock:
            if self._verified is verified:
                self._verified = None
        if is_error or not verified.instance_id:
            self._collection.request_check()
        self._worker.enqueue(self)
