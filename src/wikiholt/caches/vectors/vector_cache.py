"""A vector cache over one index: built rows in a mapped file, changed rows in memory, merged in the background."""

import logging
import secrets
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from wikiholt.caches.cache_file import CacheBroken, CacheDirectory
from wikiholt.caches.vectors.cache_state import BuiltRows, CandidateEngine, VectorCacheState
from wikiholt.caches.vectors.vector_files import CACHE_FAMILY, VectorCacheFiles
from wikiholt.caches.versioned_cache import VersionedCache
from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidQuery

_LOG = logging.getLogger(__name__)

MERGE_MIN_ROWS, MERGE_MAX_ROWS, MERGE_DIVISOR = 200, 20_000, 10
"""Small indexes merge early: unmerged rows stay in memory, and hundreds of wikis may be open at a time."""
REOPEN_AFTER_VERSIONS = 200
MAX_RETRY_DELAY_S = 60.0
_RETRY_DELAY_S = 0.5


class FileVectorCache(VersionedCache[VectorCacheState]):
    """A `VectorCache` over one index; its engine decides how candidate rows are found."""

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
        files = CacheDirectory(directory, CACHE_FAMILY)
        super().__init__(
            index, files, label="vector cache", background=background, inline_build_limit=inline_build_rows
        )
        self._files = VectorCacheFiles(index, files, engine)
        self._clock = clock
        self._failures = 0
        self._retry_at = 0.0

    # ── public interface ─────────────────────────────────────────────────────────────────────────

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """Return the nearest chunks, only of these pages (sorted ids) if given.

        Raises CacheNotReady, CacheBroken, and InvalidQuery for a vector of the wrong shape.
        """
        state = self._get_state()
        vector = np.ascontiguousarray(vector, np.float32)
        if vector.shape != (state.built.rows.vectors.shape[1],) or not np.isfinite(vector).all():
            raise InvalidQuery("The query vector does not match the vectors of the index.", hint="check the model")
        try:
            return state.search(vector, limit, page_ids)
        except CacheBroken as error:
            self._invalidate(state, error)
            raise

    def score_chunks(self, vector: FloatArray, chunk_ids: IntArray, limit: int) -> VectorHits:
        """Return the exact top `limit` of the given chunks. Unknown ids are ignored."""
        state = self._get_state()
        try:
            return state.score_chunks(vector, chunk_ids, limit)
        except CacheBroken as error:
            self._invalidate(state, error)
            raise

    def sample(self, count: int) -> VectorRows:
        """Return random rows."""
        return self._get_state().sample(count, secrets.randbits(32))

    # ── advancing and building ───────────────────────────────────────────────────────────────────

    def _advance(self, state: VectorCacheState | None) -> VectorCacheState | None:
        if state is None:
            return None
        target = self._index.get_version()
        if target - state.version > REOPEN_AFTER_VERSIONS:
            newer = self._open_newest_file(after=state.version)
            state = state if newer is None else newer
        if target > state.version:
            delta = self._index.get_vector_changes(state.version)
            if delta is None:
                return None
            state = state.apply(delta)
        return state if target <= state.version and self._has_expected_count(state) else None

    def _has_expected_count(self, state: VectorCacheState) -> bool:
        """Whether the state has as many rows as the index; otherwise it is rebuilt, not repaired."""
        index_state = self._index.get_state()
        if index_state.version < state.version:
            return False
        if index_state.version == state.version and index_state.chunks != len(state):
            _LOG.warning("the vector cache has %d rows, the index %d: rebuilding", len(state), index_state.chunks)
            return False
        return True

    def _load_from_disk(self, after: int = -1) -> VectorCacheState | None:
        """Open the newest file with a version above `after` and advance it."""
        return self._advance(self._open_newest_file(after))

    def _open_newest_file(self, after: int) -> VectorCacheState | None:
        built = self._files.open_newest(after)
        while built is not None:
            self._start_verification(built)
            if built.file is None or not built.file.invalid:
                return VectorCacheState.from_built(built)
            built = self._files.open_newest(after, before=built.version)
        return None

    def _start_verification(self, built: BuiltRows) -> None:
        """Verify a large file in the background. A small one is verified when it is opened."""
        file = built.file
        if built.finder is not None and file is not None:
            self._worker.start(lambda: self._verify_file(file))

    def _can_build(self) -> bool:
        return self._clock() >= self._retry_at

    def _get_build_size(self) -> int:
        return self._index.get_state().chunks

    def _build(self) -> VectorCacheState:
        return VectorCacheState.from_built(self._files.build(self._worker.iter_until_stopped))

    def _build_inline(self) -> VectorCacheState | None:
        try:
            state = self._build()
        except Exception as error:
            self._record_failure(error)
            raise
        self._clear_failures()
        advanced = self._advance(state)
        return state if advanced is None else advanced

    def _record_failure(self, error: Exception) -> None:
        """Record the error and double the delay before the next attempt."""
        super()._record_failure(error)
        self._failures += 1
        self._retry_at = self._clock() + min(MAX_RETRY_DELAY_S, _RETRY_DELAY_S * 2.0**self._failures)

    def _clear_failures(self) -> None:
        super()._clear_failures()
        self._failures, self._retry_at = 0, 0.0

    # ── merging ──────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _needs_merge(state: VectorCacheState) -> bool:
        """Whether enough rows changed for a new file; beyond the upper bound they would slow every search."""
        threshold = max(MERGE_MIN_ROWS, min(MERGE_MAX_ROWS, len(state.built.rows) // MERGE_DIVISOR))
        return state.changed_count > threshold

    def _start_maintenance(self, state: VectorCacheState) -> None:
        """Merge the state into a new file, unless another process wrote one that saves most of the work."""
        if not self._needs_merge(state) or not self._can_build():
            return
        if (newer := self._load_from_disk(after=state.built.version)) is not None:
            self._state = state = newer
            if not self._needs_merge(state):
                return
        self._run_merge(state, lambda: self._merge(state))

    def _merge(self, state: VectorCacheState) -> VectorCacheState | None:
        """Write the state as a new file; None if the state itself proves damaged."""
        try:
            return VectorCacheState.from_built(self._files.rewrite(state, self._worker.iter_until_stopped))
        except CacheBroken as error:
            self._invalidate(state, error)
            return None
