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

from wikiholt.cachefile.faults import CacheBroken, CacheNotReady
from wikiholt.cachefile.folder import Folder
from wikiholt.cachefile.worker import Worker
from wikiholt.errors import InvalidQuery
from wikiholt.model import Floats, Ints, Neighbours, VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.build import FAMILY
from wikiholt.vectors.engine import Engine
from wikiholt.vectors.files import CacheFiles
from wikiholt.vectors.layers import Built, Layers

_log = logging.getLogger(__name__)

MERGE_AT_LEAST, MERGE_AT_MOST, MERGE_SHARE = 200, 20_000, 10
"""Small indexes merge early: rows that wait lie in memory, and hundreds of wikis may be open at a time."""
FAR_BEHIND = 200
LONGEST_PAUSE = 60.0


class DerivedCache:
    """A VectorCache over one index; its engine says how rows are found."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        engine: Engine,
        *,
        background: bool = True,
        build_at_once: int = 20_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._index = index
        self._files = CacheFiles(index, Folder(directory, FAMILY), engine)
        self._background = background
        self._build_at_once = build_at_once
        self._clock = clock
        self._layers: Layers | None = None
        self._failure: Exception | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False
        self._begin_process()

    def _begin_process(self) -> None:
        """Locks and threads belong to one process; a forked child gets its own."""
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._worker: Worker[Built] = Worker("wikiholt-vectors", background=self._background)

    # ── the contract ─────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int | None:
        """The version of the index this cache stands for; None before it is ready."""
        layers = self._layers
        return None if layers is None else layers.version

    def refresh(self) -> None:
        """Bring the cache to the index's version: by the rows changed since, by a file on disk, or by building."""
        if self._process != os.getpid():
            self._begin_process()
        with self._lock:
            if self._closed:
                raise CacheNotReady("The vector cache was closed.")
            layers = self._take_up(self._sound(self._layers))
            if layers is None or layers.version != self._index.version():
                layers = self._advance(layers) or self._from_disk() or self._from_index()
            self._layers = layers
            if layers is not None and layers.changed > self._merge_at(layers):
                self._merge(layers)

    def search(self, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
        """The nearest chunks, of these pages (sorted ids) only if given; raises when the cache cannot be trusted."""
        layers = self._ready()
        vector = np.ascontiguousarray(vector, np.float32)
        if vector.shape != (layers.built.rows.vectors.shape[1],) or not np.isfinite(vector).all():
            raise InvalidQuery("The query's vector does not fit the vectors of the index.", hint="check the model")
        try:
            return layers.search(vector, limit, pages)
        except CacheBroken as error:
            self._files.condemn(layers.built, error)
            raise

    def scored(self, vector: Floats, chunk_ids: Ints, limit: int) -> Neighbours:
        """The nearest of these chunks, for who has guessed them; chunks that are not here are left out."""
        layers = self._ready()
        try:
            return layers.scored(vector, chunk_ids, limit)
        except CacheBroken as error:
            self._files.condemn(layers.built, error)
            raise

    def sample(self, count: int) -> VectorRows:
        """Some rows, drawn at random."""
        return self._ready().sample(count, secrets.randbits(32))

    def verify(self) -> None:
        """Compare every byte of the file with its checksums; a damaged file is dropped and CacheBroken raised."""
        layers = self._layers
        if layers is not None:
            self._files.verify(layers.built)

    def settle(self, timeout: float | None = None) -> bool:
        """Wait for work in the background to end; says whether it has. The next refresh takes it up."""
        return self._worker.wait(timeout)

    def close(self) -> None:
        """Stop work in the background and let the file go; a file half written is removed."""
        self._closed = True
        if self._process == os.getpid() and not self._worker.stop(timeout=10.0):
            _log.warning("the vector cache's background work did not stop in time; it ends with the process")
        self._layers = None

    def _ready(self) -> Layers:
        layers = self._layers
        if layers is None:
            why = f" The last attempt failed: {self._failure}" if self._failure else ""
            raise CacheNotReady(f"The vector cache is not built yet.{why}", hint="searches read the index meanwhile")
        return layers

    # ── getting there ────────────────────────────────────────────────────────────────────────────

    def _take_up(self, layers: Layers | None) -> Layers | None:
        """Continue from what the background made, if it is of use."""
        built, failure = self._worker.take()
        if failure is not None:
            self._failed(failure)
        if built is None:
            return layers
        self._succeeded()
        fresh = self._advance(Layers.over(built))
        return fresh if fresh is not None and (layers is None or fresh.version >= layers.version) else layers

    def _advance(self, layers: Layers | None) -> Layers | None:
        """The state at the index's version, reached by the rows changed since; None when that cannot be."""
        if layers is None:
            return None
        target = self._index.version()
        if target - layers.version > FAR_BEHIND:
            layers = self._open(after=layers.version) or layers
        if target > layers.version:
            delta = self._index.changes_since(layers.version)
            if delta is None:
                return None
            layers = layers.after(delta)
        return layers if target <= layers.version and self._adds_up(layers) else None

    def _adds_up(self, layers: Layers) -> bool:
        """Whether there are as many rows as the index says; a cache that lost count is not mended but replaced."""
        state = self._index.state()
        if state.version < layers.version:
            return False
        if state.version == layers.version and state.chunks != len(layers):
            _log.warning("the vector cache holds %d rows, the index %d: rebuilding", len(layers), state.chunks)
            return False
        return True

    def _from_disk(self, after: int = -1) -> Layers | None:
        """The state at the index's version, reached from the newest file that is newer than that version."""
        return self._advance(self._open(after))

    def _open(self, after: int) -> Layers | None:
        """What the newest sound file holds, if it is newer than that version."""
        built = self._files.newest(after)
        while built is not None:
            self._verify_later(built)
            if built.file is None or not built.file.condemned:
                return Layers.over(built)
            built = self._files.newest(after, before=built.version)
        return None

    def _from_index(self) -> Layers | None:
        """Build from the truth: small ones at once, large ones in the background (None until then)."""
        if self._clock() < self._retry_at:
            return None
        if self._background and self._index.state().chunks > self._build_at_once:
            self._worker.start(self._build)
            return None
        try:
            built = self._build()
        except Exception as error:
            self._failed(error)
            raise
        self._succeeded()
        return self._advance(Layers.over(built)) or Layers.over(built)

    def _build(self) -> Built:
        return self._files.build(self._worker.steps)

    # ── merging ──────────────────────────────────────────────────────────────────────────────────

    @staticmethod
    def _merge_at(layers: Layers) -> int:
        """How many changed rows are worth a new file; beyond the upper bound they would slow every search."""
        return max(MERGE_AT_LEAST, min(MERGE_AT_MOST, len(layers.built.rows) // MERGE_SHARE))

    def _merge(self, layers: Layers) -> None:
        """Begin to write the state as a new file, unless another process has one that saves most of the work."""
        if self._clock() < self._retry_at:
            return
        if (newer := self._from_disk(after=layers.built.version)) is not None:
            self._layers = layers = newer
            if layers.changed <= self._merge_at(layers):
                return
        self._worker.start(lambda: self._files.rewrite(layers, self._worker.steps))
        if not self._background:
            self._layers = self._take_up(layers)

    # ── trust ────────────────────────────────────────────────────────────────────────────────────

    def _sound(self, layers: Layers | None) -> Layers | None:
        """The state, unless its file was condemned or changed since, or the truth went back behind it."""
        if layers is None or layers.version > self._index.version():
            return None
        try:
            layers.built.watch()
        except CacheBroken as error:
            self._files.condemn(layers.built, error)
            return None
        return layers

    def _verify_later(self, built: Built) -> None:
        """Check the whole of a large file in the background; small ones were checked when they were opened."""

        def job() -> None:
            with contextlib.suppress(CacheBroken):
                self._files.verify(built)

        if built.finder is not None:
            self._worker.start(job)

    def _failed(self, error: Exception) -> None:
        """Remember why, and wait a while longer after every failure before trying again."""
        self._failure = error
        self._failures += 1
        self._retry_at = self._clock() + min(LONGEST_PAUSE, 0.5 * 2.0**self._failures)
        _log.warning("the vector cache could not be made: %s", error)

    def _succeeded(self) -> None:
        self._failure, self._failures, self._retry_at = None, 0, 0.0
