"""A vector cache derived from an index: follows its versions, keeps its rows in a file, mends itself from the truth.

Any number of threads may search while one refreshes; refreshing threads wait for one another. A search works on one
state from end to end. Merging and large builds run in one background thread and are taken up by the next refresh.
"""

import contextlib
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from wikiholt.caches.background_worker import BackgroundWorker
from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheNotReady
from wikiholt.caches.vectors.cache_state import BuiltRows, CandidateEngine, VectorCacheState
from wikiholt.caches.vectors.vector_files import CACHE_FAMILY, VectorCacheFiles
from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidQuery

_LOG = logging.getLogger(__name__)

MERGE_MIN_ROWS, MERGE_MAX_ROWS, MERGE_DIVISOR = 200, 20_000, 10
"""Small indexes merge early: rows that wait lie in memory, and hundreds of wikis may be open at a time."""
REOPEN_AFTER_VERSIONS = 200
MAX_RETRY_DELAY_S = 60.0


class FileVectorCache:
    """A VectorCache over one index; its engine says how rows are found."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        engine: CandidateEngine,
        *,
        background: bool = True,
        inline_build_rows: int = 20_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._files = VectorCacheFiles(index, CacheDirectory(directory, CACHE_FAMILY), engine)
        self._background = background
        self._inline_build_rows = inline_build_rows
        self._clock = clock
        self._state: VectorCacheState | None = None
        self._failure: Exception | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False
        self._init_process()

    def _init_process(self) -> None:
        """Locks and threads belong to one process; a forked child gets its own."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._worker: BackgroundWorker[BuiltRows] = BackgroundWorker("wikiholt-vectors", background=self._background)

    # ── the contract ─────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int | None:
        """The version of the index this cache stands for; None before it is ready."""
        layers = self._state
        return None if layers is None else layers.version

    def refresh(self) -> None:
        """Bring the cache to the index's version: by the rows changed since, by a file on disk, or by building."""
        if self._process_id != os.getpid():
            self._init_process()
        with self._lock:
            if self._closed:
                raise CacheNotReady("The vector cache was closed.")
            layers = self._take_background_result(self._check_state(self._state))
            if layers is None or layers.version != self._index.get_version():
                layers = self._advance(layers) or self._load_from_disk() or self._build_from_index()
            self._state = layers
            if layers is not None and layers.changed_count > self._get_merge_threshold(layers):
                self._start_merge(layers)

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks, of these pages (sorted ids) only if given; raises when the cache cannot be trusted."""
        layers = self._get_state()
        vector = np.ascontiguousarray(vector, np.float32)
        if vector.shape != (layers.built.rows.vectors.shape[1],) or not np.isfinite(vector).all():
            raise InvalidQuery("The query's vector does not fit the vectors of the index.", hint="check the model")
        try:
            return layers.search(vector, limit, page_ids)
        except CacheBroken as error:
            self._files.invalidate(layers.built, error)
            raise

    def score_chunks(self, vector: FloatArray, chunk_ids: IntArray, limit: int) -> VectorHits:
        """The nearest of these chunks, for who has guessed them; chunks that are not here are left out."""
        layers = self._get_state()
        try:
            return layers.score_chunks(vector, chunk_ids, limit)
        except CacheBroken as error:
            self._files.invalidate(layers.built, error)
            raise

    def sample(self, count: int) -> VectorRows:
        """Some rows, drawn at random."""
        return self._get_state().sample(count, secrets.randbits(32))

    def verify(self) -> None:
        """Compare every byte of the file with its checksums; a damaged file is dropped and CacheBroken raised."""
        layers = self._state
        if layers is not None:
            self._files.verify(layers.built)

    def wait_idle(self, timeout: float | None = None) -> bool:
        """Wait for work in the background to end; says whether it has. The next refresh takes it up."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Stop work in the background and let the file go; a file half written is removed."""
        self._closed = True
        if self._process_id == os.getpid() and not self._worker.stop(timeout=10.0):
            _LOG.warning("the vector cache's background work did not stop in time; it ends with the process")
        self._state = None

    def _get_state(self) -> VectorCacheState:
        layers = self._state
        if layers is None:
            why = f" The last attempt failed: {self._failure}" if self._failure else ""
            raise CacheNotReady(f"The vector cache is not built yet.{why}", hint="searches read the index meanwhile")
        return layers

    # ── getting there ────────────────────────────────────────────────────────────────────────────

    def _take_background_result(self, state: VectorCacheState | None) -> VectorCacheState | None:
        """Continue from what the background made, if it is of use."""
        built, failure = self._worker.take_result()
        if failure is not None:
            self._record_failure(failure)
        if built is None:
            return state
        self._clear_failures()
        fresh = self._advance(VectorCacheState.from_built(built))
        return fresh if fresh is not None and (state is None or fresh.version >= state.version) else state

    def _advance(self, state: VectorCacheState | None) -> VectorCacheState | None:
        """The state at the index's version, reached by the rows changed since; None when that cannot be."""
        if state is None:
            return None
        target = self._index.get_version()
        if target - state.version > REOPEN_AFTER_VERSIONS:
            state = self._open_newest_file(after=state.version) or state
        if target > state.version:
            delta = self._index.get_vector_changes(state.version)
            if delta is None:
                return None
            state = state.apply(delta)
        return state if target <= state.version and self._has_expected_count(state) else None

    def _has_expected_count(self, cache_state: VectorCacheState) -> bool:
        """Whether there are as many rows as the index says; a cache that lost count is not mended but replaced."""
        state = self._index.get_state()
        if state.version < cache_state.version:
            return False
        if state.version == cache_state.version and state.chunks != len(cache_state):
            _LOG.warning("the vector cache holds %d rows, the index %d: rebuilding", len(cache_state), state.chunks)
            return False
        return True

    def _load_from_disk(self, after: int = -1) -> VectorCacheState | None:
        """The state at the index's version, reached from the newest file that is newer than that version."""
        return self._advance(self._open_newest_file(after))

    def _open_newest_file(self, after: int) -> VectorCacheState | None:
        """What the newest sound file holds, if it is newer than that version."""
        built = self._files.open_newest(after)
        while built is not None:
            self._start_verification(built)
            if built.file is None or not built.file.invalid:
                return VectorCacheState.from_built(built)
            built = self._files.open_newest(after, before=built.version)
        return None

    def _build_from_index(self) -> VectorCacheState | None:
        """Build from the truth: small ones at once, large ones in the background (None until then)."""
        if self._clock() < self._retry_at:
            return None
        if self._background and self._index.get_state().chunks > self._inline_build_rows:
            self._worker.start(self._build)
            return None
        try:
            built = self._build()
        except Exception as error:
            self._record_failure(error)
            raise
        self._clear_failures()
        return self._advance(VectorCacheState.from_built(built)) or VectorCacheState.from_built(built)

    def _build(self) -> BuiltRows:
        return self._files.build(self._worker.iter_until_stopped)

    # ── merging ──────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _get_merge_threshold(state: VectorCacheState) -> int:
        """How many changed rows are worth a new file; beyond the upper bound they would slow every search."""
        return max(MERGE_MIN_ROWS, min(MERGE_MAX_ROWS, len(state.built.rows) // MERGE_DIVISOR))

    def _start_merge(self, state: VectorCacheState) -> None:
        """Begin to write the state as a new file, unless another process has one that saves most of the work."""
        if self._clock() < self._retry_at:
            return
        if (newer := self._load_from_disk(after=state.built.version)) is not None:
            self._state = state = newer
            if state.changed_count <= self._get_merge_threshold(state):
                return
        self._worker.start(lambda: self._files.rewrite(state, self._worker.iter_until_stopped))
        if not self._background:
            self._state = self._take_background_result(state)

    # ── trust ────────────────────────────────────────────────────────────────────────────────────

    def _check_state(self, state: VectorCacheState | None) -> VectorCacheState | None:
        """The state, unless its file was condemned or changed since, or the truth went back behind it."""
        if state is None or state.version > self._index.get_version():
            return None
        try:
            state.built.ensure_unchanged()
        except CacheBroken as error:
            self._files.invalidate(state.built, error)
            return None
        return state

    def _start_verification(self, built: BuiltRows) -> None:
        """Check the whole of a large file in the background; small ones were checked when they were opened."""

        def job() -> None:
            with contextlib.suppress(CacheBroken):
                self._files.verify(built)

        if built.finder is not None:
            self._worker.start(job)

    def _record_failure(self, error: Exception) -> None:
        """Remember why, and wait a while longer after every failure before trying again."""
        self._failure = error
        self._failures += 1
        self._retry_at = self._clock() + min(MAX_RETRY_DELAY_S, 0.5 * 2.0**self._failures)
        _LOG.warning("the vector cache could not be made: %s", error)

    def _clear_failures(self) -> None:
        self._failure, self._failures, self._retry_at = None, 0, 0.0
