"""The vector cache of one wiki with Chroma's help: Chroma guesses which chunks are nearest, exact scores decide.

The rows lie in a mapped file as they do without Chroma. So an answer of Chroma's is never believed, only scored; a
chunk that came since its collection's version is scored too; and while Chroma is away, slow or wrong the same rows
answer alone, exactly, and say so. A search never waits longer for Chroma than its time, and once it has waited in
vain no other search does until Chroma has proved itself again.
"""

import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from wikiholt.caches.chroma.client import ChromaError, ChromaMetrics, ChromaUnavailable, CollectionBusy
from wikiholt.caches.chroma.collection import EXTRA_NEIGHBOURS, CollectionOwner, CollectionSync, VerifiedCollection
from wikiholt.caches.chroma.rest_api import ChromaApi, NearestRows
from wikiholt.caches.chroma.sync_worker import CollectionSyncWorker
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.domain.storage_protocols import WikiIndex

MAX_CHROMA_LIMIT = 1000
"""Whoever asks for more neighbours than this wants all of them, and is answered by exact scores."""
_PROBE_EVERY_SEARCHES, _PROBE_ROWS = 16, 4
"""With every so many searches, and with the first over a new connection, so many rows are looked for that are there."""

_CHECK_INTERVAL_S, _RECONNECT_CHECK_INTERVAL_S = 900.0, 60.0
"""Seconds between two comparisons of a collection that is in use, and for no better reason than a new connection."""


class ChromaVectorCache:
    """A VectorCache over one index and its collection."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        owner: CollectionOwner,
        worker: CollectionSyncWorker,
        *,
        timeout: float,
        is_published: Callable[[], bool] = lambda: True,
        background: bool = True,
    ) -> None:
        self._exact = ExactVectorCache(index, directory, background=background)
        self._index = index
        self._worker = worker
        self._timeout = timeout
        self._metrics: ChromaMetrics = worker.metrics
        self._collection = CollectionSync(
            index, self._exact, directory, owner, worker.metrics, worker.get_wiki_ids, is_published
        )
        self._checked_at = time.monotonic()
        self._verified: VerifiedCollection | None = None
        self._search_counter = itertools.count()
        self._is_first_refresh = True
        self._lock = threading.Lock()

    # ── the contract ─────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int | None:
        return self._exact.version

    def refresh(self) -> None:
        """Bring the rows to the index's version, and have the collection follow in the background."""
        self._exact.refresh()
        standing = self._verified
        if standing is None or standing.version != self._index.get_version():
            self._worker.enqueue(self)
        elif time.monotonic() - self._checked_at > _CHECK_INTERVAL_S:
            self._schedule_check()
        if self._is_first_refresh:
            # A command that searches once is to find Chroma ready; nobody waits for it a second time.
            self._is_first_refresh = False
            self._worker.wait(self, self._timeout)
        self._track_new_chunks()

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks, of these pages only if given: those are scored, for a filter of Chroma's loses some."""
        if page_ids is not None or limit > MAX_CHROMA_LIMIT:
            return self._exact.search(vector, limit, page_ids)
        standing = self._verified
        if standing is not None:
            try:
                return self._search_chroma(standing, np.ascontiguousarray(vector, np.float32), limit)
            except (ChromaUnavailable, ChromaError) as error:
                self._metrics.add(
                    "timeouts" if isinstance(error, ChromaUnavailable) and error.timed_out else "failures"
                )
                self._drop_verified(standing, is_error=isinstance(error, ChromaError))
        self._metrics.add("fallbacks")
        return replace(self._exact.search(vector, limit, None), degraded=True)

    def verify(self) -> None:
        """Compare every byte of the rows' file, and have the collection compared with the truth."""
        self._schedule_check()
        self._exact.verify()

    def wait_idle(self, timeout: float | None = None) -> bool:
        return self._exact.wait_idle(timeout) and self._worker.wait(self, timeout)

    def close(self) -> None:
        self._worker.remove(self)
        self._verified = None
        self._exact.close()

    # ── for the caretaker ────────────────────────────────────────────────────────────────────────

    def sync_collection(self, api: ChromaApi, instance_id: str, should_stop: Callable[[], bool]) -> None:
        """Make the collection equal to the index; from then on searches ask it."""
        self._exact.refresh()
        if self._exact.version is None:
            raise CollectionBusy("The rows of a large wiki are being built.")
        self._verified = self._collection.sync(api, instance_id, should_stop)

    def mark_unavailable(self) -> None:
        """Chroma is away: ask it no more."""
        self._verified = None

    def is_behind(self) -> bool:
        """Whether there is something to do again."""
        standing = self._verified
        return standing is None or standing.version != self._index.get_version()

    # ── asking ───────────────────────────────────────────────────────────────────────────────────

    def _search_chroma(self, verified: VerifiedCollection, vector: FloatArray, limit: int) -> VectorHits:
        """Chroma's guess and what came since, scored; where too few were found, every row is."""
        wanted = min(limit + EXTRA_NEIGHBOURS, verified.row_count)
        if wanted == 0:
            return self._exact.search(vector, limit, None)
        watched = (
            self._exact.sample(_PROBE_ROWS).vectors
            if next(self._search_counter) % _PROBE_EVERY_SEARCHES == 0
            else vector[:0]
        )
        found = self._query_with_probes(verified, vector, watched.reshape(-1, len(vector)), wanted)
        if found.is_new_connection:
            self._probe_connection(verified, vector)
        chunks = self._collection.to_chunk_ids(found.rows[0])
        if len(chunks) < 0.9 * wanted:
            raise ChromaError("Chroma finds fewer rows than there are.")
        near = self._exact.score_chunks(vector, np.union1d(chunks, verified.new_chunk_ids), limit)
        self._metrics.add("queries")
        if len(near.chunk_ids) < min(limit, verified.row_count):
            return self._exact.search(vector, limit, None)
        return near

    def _probe_connection(self, verified: VerifiedCollection, vector: FloatArray) -> None:
        """Behind a new connection there may be another server: have rows found, and soon all of them compared."""
        self._query_with_probes(verified, vector, self._exact.sample(_PROBE_ROWS).vectors, 1)
        if not verified.instance_id and time.monotonic() - self._checked_at > _RECONNECT_CHECK_INTERVAL_S:
            self._schedule_check()

    def _schedule_check(self) -> None:
        """Have the collection compared with the truth in the background; it is asked meanwhile."""
        self._checked_at = time.monotonic()
        self._collection.request_check()
        self._worker.enqueue(self)

    def _query_with_probes(
        self, verified: VerifiedCollection, vector: FloatArray, probes: FloatArray, row_limit: int
    ) -> NearestRows:
        """Ask for the neighbours of a vector and of rows that are there, each of which must find itself."""
        vectors = np.concatenate((vector[None], probes))
        found = verified.collection.search(
            vectors, row_limit, with_metadata=self._collection.uses_metadata, timeout=self._timeout
        )
        if found.instance_id != verified.instance_id:
            raise ChromaUnavailable("Chroma is another process than the one that proved itself.")
        for row, rows in zip(probes, found.rows[1:], strict=True):
            itself = self._exact.score_chunks(row, self._collection.to_chunk_ids(rows), 1)
            if not len(itself.distances) or itself.distances[0] > 1e-3:
                raise ChromaError("Chroma does not find a row that is there.")
        return found

    def _track_new_chunks(self) -> None:
        """Know which chunks came since the collection's version."""
        standing = self._verified
        if standing is None or standing.version == self._index.get_version():
            return
        delta = self._index.get_vector_changes(standing.version)
        with self._lock:
            if self._verified is standing:
                fresh = None if delta is None else replace(standing, new_chunk_ids=delta.added.chunk_ids)
                self._verified = fresh

    def _drop_verified(self, verified: VerifiedCollection, *, is_error: bool) -> None:
        with self._lock:
            if self._verified is verified:
                self._verified = None
        if is_error or not verified.instance_id:
            self._collection.request_check()
        self._worker.enqueue(self)
