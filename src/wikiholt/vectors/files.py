"""Makes the built rows of a cache and judges them: from the index, from layers, from the newest file that is sound."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from wikiholt.cachefile.faults import CacheBroken
from wikiholt.cachefile.folder import CacheFileName, CacheDirectory
from wikiholt.model import VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.build import CACHE_FAMILY, build_file, build_in_memory, open_file
from wikiholt.vectors.engine import CandidateEngine
from wikiholt.vectors.layers import BuiltRows, VectorCacheState

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
                return self._build_file(snapshot.version, snapshot.count, steps(_release_after_read(snapshot.iter_blocks(), held)))
        except OSError as error:
            _LOG.warning("the vector cache stays in memory: %s", error)
        with contextlib.ExitStack() as held:
            snapshot = held.enter_context(self._index.open_vector_snapshot())
            return self._build_in_memory(snapshot.version, snapshot.count, steps(_release_after_read(snapshot.iter_blocks(), held)))

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
        return _check_count(build_file(self._directory, self._engine, state.generation, version, dimensions, blocks), count)

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
