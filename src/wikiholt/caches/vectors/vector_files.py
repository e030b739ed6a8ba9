"""Builds and opens the rows of a vector cache: in a file, or in memory if no file can be written."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from wikiholt.caches.cache_file import CacheBroken, CacheDirectory, CacheFileName, MappedFile, SectionWriter
from wikiholt.caches.vectors.cache_state import Array, BuiltRows, CandidateEngine, VectorCacheState, to_float_array
from wikiholt.caches.vectors.vector_rows import VectorTable, check_unit_length
from wikiholt.domain.index import IntArray, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex

_LOG = logging.getLogger(__name__)

StepIterator = Callable[[Iterable[VectorRows]], Iterator[VectorRows]]
_Build = Callable[[int, int, Iterable[VectorRows]], BuiltRows]
"""Builds rows from a version, the number of rows, and the blocks."""

CACHE_FAMILY = "vectors"
_ID_SECTIONS = ("chunks", "pages")


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
        count = sum(map(len, chunk_ids))
        writer.write("chunks", _concatenate_ids(chunk_ids))
        writer.write("pages", _concatenate_ids(page_ids))
        if count > engine.scan_max_rows:
            for section, part in engine.build_sections(writer.read_floats("vectors", dimensions)):
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
    return BuiltRows(version, VectorTable(chunk_ids, page_ids, vectors), finder, None)


def open_file(
    path: Path, owner: str, name: CacheFileName, engine: CandidateEngine, dimensions: int, *, trusted: bool = False
) -> BuiltRows:
    """Map a file and run the cheap checks, or none of the checksums if `trusted`. Raises CacheBroken or OSError."""
    file = MappedFile(path)
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
        file.verify_checksums((*_ID_SECTIONS, "vectors") if scanned else (*_ID_SECTIONS, *engine.verified_sections))
    try:
        chunk_ids, page_ids = (np.frombuffer(file.get_section(section), np.int64) for section in _ID_SECTIONS)
        rows = VectorTable(chunk_ids, page_ids, to_float_array(file.get_section("vectors"), count, dimensions))
        if len(chunk_ids) != count or len(page_ids) != count:
            raise ValueError("the number of rows and ids differs")
        sections = {section.name: file.get_section(section.name) for section in header.sections}
        finder = None if scanned else engine.open_finder(sections, count, dimensions)
    except (ValueError, KeyError) as error:
        raise CacheBroken(f"The vector cache {name} is invalid: {error}.") from error
    return BuiltRows(header.version, rows, finder, file)


def _concatenate_ids(parts: list[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _concatenate_bytes(parts: list[Any]) -> memoryview:
    return np.concatenate(parts).reshape(-1).view(np.uint8).data


class VectorCacheFiles:
    """The files of one kind of cache of one index. A `StepIterator` wraps the blocks so that work can be cancelled."""

    def __init__(self, index: WikiIndex, directory: CacheDirectory, engine: CandidateEngine) -> None:
        self._index = index
        self._directory = directory
        self._engine = engine

    def open_newest(self, after: int, before: int | None = None) -> BuiltRows | None:
        """Open the newest usable file with `after` < version < `before`. Removes unusable files."""
        names = self._directory.list_files(self._index.generation, self._engine.kind)
        state = self._index.get_state()
        for name in names:
            # A version above the index's comes from another history (a restored backup): never use it.
            if name.version > state.version:
                self._directory.remove(name)
                continue
            if before is not None and name.version >= before:
                continue
            if name.version <= after:
                return None
            try:
                return open_file(
                    self._directory.get_path(name), self._directory.owner, name, self._engine, state.recipe.dimensions
                )
            except FileNotFoundError:
                continue
            except (CacheBroken, OSError) as error:
                _LOG.warning("removing the cache file %s: %s", name, error)
                self._directory.remove(name)
        return None

    def build(self, steps: StepIterator) -> BuiltRows:
        """Build from the index's current rows: in a file, or in memory if no file can be written."""
        try:
            return self._build_from_snapshot(self._build_file, steps)
        except OSError as error:
            _LOG.warning("the vector cache stays in memory: %s", error)
        return self._build_from_snapshot(self._build_in_memory, steps)

    def rewrite(self, state: VectorCacheState, steps: StepIterator) -> BuiltRows:
        """Build from the rows of a state, without the index. Raises CacheBroken if the state's file is damaged."""
        try:
            return self._build_file(state.version, len(state), steps(state.iter_blocks()))
        except OSError as error:
            _LOG.warning("the vector cache stays in memory: %s", error)
        return self._build_in_memory(state.version, len(state), steps(state.iter_blocks()))

    def _build_from_snapshot(self, build: _Build, steps: StepIterator) -> BuiltRows:
        with contextlib.ExitStack() as resources:
            snapshot = resources.enter_context(self._index.open_vector_snapshot())
            blocks = _release_after_read(snapshot.iter_blocks(), resources)
            return build(snapshot.version, snapshot.count, steps(blocks))

    def _build_file(self, version: int, count: int, blocks: Iterable[VectorRows]) -> BuiltRows:
        state = self._index.get_state()
        dimensions = state.recipe.dimensions
        return _check_count(
            build_file(self._directory, self._engine, state.generation, version, dimensions, blocks), count
        )

    def _build_in_memory(self, version: int, count: int, blocks: Iterable[VectorRows]) -> BuiltRows:
        dimensions = self._index.get_state().recipe.dimensions
        return _check_count(build_in_memory(self._engine, version, dimensions, blocks), count)


def _check_count(built: BuiltRows, count: int) -> BuiltRows:
    if len(built.rows) != count:
        raise CacheBroken(f"The index announced {count} vectors but returned {len(built.rows)}.")
    return built


def _release_after_read(blocks: Iterable[VectorRows], resources: contextlib.ExitStack) -> Iterator[VectorRows]:
    """Yield the blocks and close the snapshot after the last one: what follows may take long."""
    yield from blocks
    resources.close()
