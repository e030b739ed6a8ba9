"""A vector cache over one index: built rows in a mapped file, changed rows in memory, merged in the background.

If no file can be written, the built rows stay in memory.
"""

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheFileName, MappedFile, SectionWriter
from wikiholt.caches.vectors.cache_state import (
    Array,
    BuiltRows,
    CandidateEngine,
    VectorCacheState,
    to_float_array,
)
from wikiholt.caches.vectors.vector_table import MeanTable, VectorTable, check_unit_length
from wikiholt.caches.versioned_cache import VersionedCache
from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidQuery

_Build = Callable[[int, int, Iterable[VectorRows]], VectorCacheState]
"""Builds rows from a version, the number of rows, and the blocks."""

CACHE_FAMILY = "vectors"
_ID_SECTIONS = ("chunks", "pages", "mean_pages")


def build_file(
    directory: CacheDirectory,
    engine: CandidateEngine,
    generation: int,
    version: int,
    dimensions: int,
    blocks: Iterable[VectorRows],
) -> BuiltRows:
    """Write the rows and the engine's sections to a file and open it. Raises OSError."""
    name = CacheFileName(CACHE_FAMILY, generation, version, engine.kind)
    with directory.open_for_writing(name) as file:
        writer = SectionWriter(file)
        chunk_ids, page_ids = [], []
        writer.write("vectors", np.empty(0, np.float32))
        for block in blocks:
            check_unit_length(block.vectors, block.chunk_ids)
            writer.write("vectors", np.asarray(block.vectors, np.float32))
            chunk_ids.append(block.chunk_ids)
            page_ids.append(block.page_ids)
        vectors = writer.read_floats("vectors", dimensions)
        rows = VectorTable(_concatenate_ids(chunk_ids), _concatenate_ids(page_ids), vectors)
        count = len(rows)
        writer.write("chunks", rows.chunk_ids)
        writer.write("pages", rows.page_ids)
        writer.write("means", np.empty(0, np.float32))
        mean_page_ids = []
        for means in rows.iter_means():
            writer.write("means", means.vectors)
            mean_page_ids.append(means.page_ids)
        writer.write("mean_pages", _concatenate_ids(mean_page_ids))
        if count > engine.scan_max_rows:
            for section, part in engine.build_sections(vectors):
                writer.write(section, part)
        writer.finish(engine.kind, directory.owner, generation, version, {"dimensions": dimensions, "count": count})
        # Open it before the rename: afterwards another process may replace or remove it.
        built = open_file(Path(file.name), directory.owner, name, engine, dimensions, trusted=True)
    directory.remove_older(name)
    return built


def build_in_memory(engine: CandidateEngine, version: int, dimensions: int, blocks: Iterable[VectorRows]) -> BuiltRows:
    """Build the rows and the engine's finder in memory."""
    all_blocks = list(blocks)
    vectors = np.concatenate([np.empty((0, dimensions), np.float32), *(block.vectors for block in all_blocks)])
    chunk_ids = _concatenate_ids([block.chunk_ids for block in all_blocks])
    page_ids = _concatenate_ids([block.page_ids for block in all_blocks])
    check_unit_length(vectors, chunk_ids)
    finder = None
    if len(vectors) > engine.scan_max_rows:
        parts: dict[str, list[Array]] = {}
        for section, part in engine.build_sections(vectors):
            parts.setdefault(section, []).append(part)
        finder = engine.open_finder(
            {name: _concatenate_bytes(part) for name, part in parts.items()}, len(vectors), dimensions
        )
    rows = VectorTable(chunk_ids, page_ids, vectors)
    all_means = list(rows.iter_means())
    means = MeanTable(
        _concatenate_ids([block.page_ids for block in all_means]),
        np.concatenate([vectors[:0], *(block.vectors for block in all_means)]),
    )
    return BuiltRows(version, rows, means, finder, None)


def open_file(
    path: Path, owner: str, name: CacheFileName, engine: CandidateEngine, dimensions: int, *, trusted: bool = False
) -> BuiltRows:
    """Map a file and run the cheap checks, or none of the checksums if `trusted`. Raises CacheBroken or OSError."""
    file = MappedFile(path, path.with_name(str(name)))
    header = file.header
    if header.owner != owner:
        raise CacheBroken(f"The vector cache {name} belongs to another wiki.")
    count = header.about.get("count")
    expected = (name.kind, name.generation, name.version, {"dimensions": dimensions, "count": count})
    if (header.kind, header.generation, header.version, header.about) != expected or not isinstance(count, int):
        raise CacheBroken(f"The header of the vector cache {name} does not match its name.")
    scanned = count <= engine.scan_max_rows
    if not trusted:
        # If every row is scored there are few rows, and a damaged row would go unnoticed: verify them all.
        file.verify_checksums((*_ID_SECTIONS, *(("vectors", "means") if scanned else engine.verified_sections)))
    try:
        chunk_ids, page_ids, mean_ids = (np.frombuffer(file.get_section(name), np.int64) for name in _ID_SECTIONS)
        means = MeanTable(mean_ids, to_float_array(file.get_section("means"), len(mean_ids), dimensions))
        rows = VectorTable(chunk_ids, page_ids, to_float_array(file.get_section("vectors"), count, dimensions))
        if len(chunk_ids) != count or len(page_ids) != count:
            raise ValueError("the number of rows and ids differs")
        sections = {section.name: file.get_section(section.name) for section in header.sections}
        finder = None if scanned else engine.open_finder(sections, count, dimensions)
    except (ValueError, KeyError) as error:
        raise CacheBroken(f"The vector cache {name} is invalid: {error}.") from error
    return BuiltRows(header.version, rows, means, finder, file)


def _concatenate_ids(parts: list[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _concatenate_bytes(parts: list[Any]) -> memoryview:
    return np.concatenate(parts).reshape(-1).view(np.uint8).data


def _make_state(built: BuiltRows, count: int) -> VectorCacheState:
    if len(built.rows) != count:
        raise CacheBroken(f"The index announced {count} vectors but returned {len(built.rows)}.")
    return VectorCacheState.from_built(built)


def _release_after_read(blocks: Iterable[VectorRows], resources: contextlib.ExitStack) -> Iterator[VectorRows]:
    """Yield the blocks and close the snapshot after the last one: what follows may take long."""
    yield from blocks
    resources.close()


# The vector cache of one index


_LOG = logging.getLogger(__name__)

MERGE_MIN_ROWS, MERGE_MAX_ROWS, MERGE_DIVISOR = 200, 20_000, 10
"""Small indexes merge early: unmerged rows stay in memory, and hundreds of wikis may be open at a time."""
REOPEN_AFTER_VERSIONS = 200


class FileVectorCache(VersionedCache[VectorCacheState]):
    """A `VectorCache` over one index; its engine decides how candidate rows are found."""

    _make_engine: ClassVar[Callable[[], CandidateEngine]]
    """Makes the engine of a kind of cache."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        engine: CandidateEngine | None = None,
        *,
        background: bool = True,
        inline_build_rows: int = 20_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            index,
            CacheDirectory(directory, CACHE_FAMILY),
            label="vector cache",
            background=background,
            inline_build_limit=inline_build_rows,
            clock=clock,
        )
        self._engine = engine or type(self)._make_engine()

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

    def read_ahead(self, page_ids: IntArray) -> VectorRows | None:
        """Return every chunk of these pages (sorted ids) with its vector; None if every row is scored anyway.

        Raises CacheNotReady, CacheBroken.
        """
        state = self._get_state()
        try:
            return state.get_page_vectors(page_ids) if state.built.finder is not None else None
        except CacheBroken as error:
            self._invalidate(state, error)
            raise

    def get_page_means(self, page_ids: IntArray) -> FloatArray:
        """Return the mean of the vectors of each of these pages (sorted ids). Raises CacheNotReady, CacheBroken."""
        state = self._get_state()
        try:
            return state.get_page_means(page_ids)
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

    def _advance_built(self, state: VectorCacheState) -> VectorCacheState:
        """Advance the state, or use it as it is until the next refresh."""
        advanced = self._advance(state)
        return state if advanced is None else advanced

    def _has_expected_count(self, state: VectorCacheState) -> bool:
        """Whether the state has as many rows as the index; otherwise it is rebuilt, not repaired."""
        index_state = self._index.get_state()
        if index_state.version < state.version:
            return False
        if index_state.version == state.version and index_state.chunks != len(state):
            _LOG.warning("the vector cache has %d rows, the index %d: rebuilding", len(state), index_state.chunks)
            return False
        return True

    def _get_file_kind(self) -> str:
        return self._engine.kind

    def _open_file(self, name: CacheFileName) -> VectorCacheState:
        dimensions = self._index.get_state().recipe.dimensions
        built = open_file(self._directory.get_path(name), self._directory.owner, name, self._engine, dimensions)
        if built.finder is not None and built.file is not None:  # without a finder, all checksums were verified
            self._verify_later(built.file)
        return VectorCacheState.from_built(built)

    def _get_build_size(self) -> int:
        return self._index.get_state().chunks

    def _build(self) -> VectorCacheState:
        """Build from the index's current rows: in a file, or in memory if no file can be written."""
        try:
            return self._build_from_snapshot(self._build_file)
        except OSError as error:
            _LOG.warning("the vector cache stays in memory: %s", error)
        return self._build_from_snapshot(self._build_in_memory)

    def _build_from_snapshot(self, build: _Build) -> VectorCacheState:
        with contextlib.ExitStack() as resources:
            snapshot = resources.enter_context(self._index.open_vector_snapshot())
            return build(snapshot.version, snapshot.count, _release_after_read(snapshot.iter_blocks(), resources))

    def _build_file(self, version: int, count: int, blocks: Iterable[VectorRows]) -> VectorCacheState:
        state, steps = self._index.get_state(), self._worker.iter_until_stopped(blocks)
        dimensions = state.recipe.dimensions
        built = build_file(self._directory, self._engine, state.generation, version, dimensions, steps)
        return _make_state(built, count)

    def _build_in_memory(self, version: int, count: int, blocks: Iterable[VectorRows]) -> VectorCacheState:
        dimensions, steps = self._index.get_state().recipe.dimensions, self._worker.iter_until_stopped(blocks)
        return _make_state(build_in_memory(self._engine, version, dimensions, steps), count)

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
        """Write the state as a new file, without the index; None if the state itself proves damaged."""
        try:
            try:
                return self._build_file(state.version, len(state), state.iter_blocks())
            except OSError as error:
                _LOG.warning("the vector cache stays in memory: %s", error)
            return self._build_in_memory(state.version, len(state), state.iter_blocks())
        except CacheBroken as error:
            self._invalidate(state, error)
            return None
