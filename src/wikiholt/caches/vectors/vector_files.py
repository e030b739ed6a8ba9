"""Makes the rows of a cache: into a file where the folder allows it, in memory where it does not; and opens files."""

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
    """Write the rows and what the engine derives from them to a file, and open it; raises OSError if it cannot."""
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
        # Opened before it has its name: from then on another process may replace or remove it.
        built = open_file(Path(file.name), directory.owner, name, engine, dimensions, trusted=True)
    directory.remove_older(name)
    return built


def build_in_memory(engine: CandidateEngine, version: int, dimensions: int, blocks: Iterable[VectorRows]) -> BuiltRows:
    """The same without a file."""
    kept = list(blocks)
    vectors = np.concatenate([np.empty((0, dimensions), np.float32), *(block.vectors for block in kept)])
    chunk_ids, page_ids = _concatenate_ids([b.chunk_ids for b in kept]), _concatenate_ids([b.page_ids for b in kept])
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
    """Map a file of this owner and check what is cheap to check; raises CacheBroken or OSError."""
    file = MappedFile(path)
    header = file.header
    if header.owner != owner:
        raise CacheBroken(f"The vector cache {name} belongs to another wiki.")
    count = header.about.get("count")
    expected = (name.kind, name.generation, name.version, {"dimensions": dimensions, "count": count})
    if (header.kind, header.generation, header.version, header.about) != expected or not isinstance(count, int):
        raise CacheBroken(f"The vector cache {name} does not hold what its name says.")
    scanned = count <= engine.scan_max_rows
    if not trusted:
        # Rows that are scanned whole are few, and a row that was lost from the scan would not be missed.
        file.verify_checksums((*_ID_SECTIONS, "vectors") if scanned else (*_ID_SECTIONS, *engine.verified_sections))
    try:
        chunk_ids, page_ids = (np.frombuffer(file.get_section(section), np.int64) for section in _ID_SECTIONS)
        rows = VectorTable(chunk_ids, page_ids, to_float_array(file.get_section("vectors"), count, dimensions))
        if len(chunk_ids) != count or len(page_ids) != count:
            raise ValueError("rows and ids differ in number")
        sections = {section.name: file.get_section(section.name) for section in header.sections}
        finder = None if scanned else engine.open_finder(sections, count, dimensions)
    except (ValueError, KeyError) as error:
        raise CacheBroken(f"The vector cache {name} makes no sense: {error}.") from error
    return BuiltRows(header.version, rows, finder, file)


def _concatenate_ids(parts: list[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _concatenate_bytes(parts: list[Any]) -> memoryview:
    return np.concatenate(parts).reshape(-1).view(np.uint8).data


# Makes the built rows of a cache and judges them: from the index, from layers, from the newest file that is sound.


_LOG = logging.getLogger(__name__)

StepIterator = Callable[[Iterable[VectorRows]], Iterator[VectorRows]]


class VectorCacheFiles:
    """The files of one kind of cache of one index. `steps` is passed every block, so that work can be stopped."""

    def __init__(self, index: WikiIndex, directory: CacheDirectory, engine: CandidateEngine) -> None:
        self._index = index
        self._directory = directory
        self._engine = engine

    def open_newest(self, after: int, before: int | None = None) -> BuiltRows | None:
        """The newest file between these versions that can be opened; those that cannot are removed."""
        names = self._directory.list_files(self._index.generation, self._engine.kind)
        state = self._index.get_state()
        for name in names:
            # A version the index has not reached comes from another history (a restored backup): never believe it.
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
                _LOG.warning("dropping the vector cache %s: %s", name, error)
                self._directory.remove(name)
        return None

    def build(self, steps: StepIterator) -> BuiltRows:
        """The index's rows at its version now, in a file or, where none can be written, in memory."""
        try:
            with contextlib.ExitStack() as held:
                snapshot = held.enter_context(self._index.open_vector_snapshot())
                return self._build_file(
                    snapshot.version, snapshot.count, steps(_release_after_read(snapshot.iter_blocks(), held))
                )
        except OSError as error:
            _LOG.warning("the vector cache stays in memory: %s", error)
        with contextlib.ExitStack() as held:
            snapshot = held.enter_context(self._index.open_vector_snapshot())
            return self._build_in_memory(
                snapshot.version, snapshot.count, steps(_release_after_read(snapshot.iter_blocks(), held))
            )

    def rewrite(self, state: VectorCacheState, steps: StepIterator) -> BuiltRows | None:
        """The rows of these layers, built anew without the index; None when the file under them proved damaged."""
        try:
            return self._build_file(state.version, len(state), steps(state.iter_blocks()))
        except CacheBroken as error:
            self.invalidate(state.built, error)
            return None
        except OSError as error:
            _LOG.warning("the vector cache stays in memory: %s", error)
        return self._build_in_memory(state.version, len(state), steps(state.iter_blocks()))

    def verify(self, built: BuiltRows) -> None:
        """Compare every byte of the file with its checksums; a damaged file is condemned and CacheBroken raised."""
        if built.file is None:
            return
        try:
            built.file.verify_checksums()
        except CacheBroken as error:
            self.invalidate(built, error)
            raise

    def invalidate(self, built: BuiltRows, error: Exception) -> None:
        """Never believe this file again, and remove it if it still lies there."""
        _LOG.warning("dropping the vector cache of version %d: %s", built.version, error)
        if built.file is not None:
            built.file.invalid = True
            header = built.file.header
            self._directory.remove(CacheFileName(CACHE_FAMILY, header.generation, header.version, header.kind))

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
        raise CacheBroken(f"The index announced {count} vectors and gave {len(built.rows)}.")
    return built


def _release_after_read(blocks: Iterable[VectorRows], resources: contextlib.ExitStack) -> Iterator[VectorRows]:
    """The blocks; once the last was read the snapshot is let go, since deriving from them may take long."""
    yield from blocks
    resources.close()
