"""Makes the built rows of a cache and judges them: from the index, from layers, from the newest file that is sound."""

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator

from wikiholt.cachefile.faults import CacheBroken
from wikiholt.cachefile.folder import CacheName, Folder
from wikiholt.model import VectorRows
from wikiholt.ports import WikiIndex
from wikiholt.vectors.build import FAMILY, build_file, build_in_memory, open_file
from wikiholt.vectors.engine import Engine
from wikiholt.vectors.layers import Built, Layers

_log = logging.getLogger(__name__)

Steps = Callable[[Iterable[VectorRows]], Iterator[VectorRows]]


class CacheFiles:
    """The files of one kind of cache of one index. `steps` is passed every block, so that work can be stopped."""

    def __init__(self, index: WikiIndex, folder: Folder, engine: Engine) -> None:
        self._index = index
        self._folder = folder
        self._engine = engine

    def newest(self, after: int, before: int | None = None) -> Built | None:
        """The newest file between these versions that can be opened; those that cannot are removed."""
        names = self._folder.names(self._index.generation, self._engine.kind)
        state = self._index.state()
        for name in names:
            # A version the index has not reached comes from another history (a restored backup): never believe it.
            if name.version > state.version:
                self._folder.remove(name)
                continue
            if before is not None and name.version >= before:
                continue
            if name.version <= after:
                return None
            try:
                return open_file(
                    self._folder.locate(name), self._folder.owner, name, self._engine, state.recipe.dimensions
                )
            except FileNotFoundError:
                continue
            except (CacheBroken, OSError) as error:
                _log.warning("dropping the vector cache %s: %s", name, error)
                self._folder.remove(name)
        return None

    def build(self, steps: Steps) -> Built:
        """The index's rows at its version now, in a file or, where none can be written, in memory."""
        try:
            with contextlib.ExitStack() as held:
                snapshot = held.enter_context(self._index.snapshot())
                return self._write(snapshot.version, snapshot.count, steps(_releasing(snapshot.blocks(), held)))
        except OSError as error:
            _log.warning("the vector cache stays in memory: %s", error)
        with contextlib.ExitStack() as held:
            snapshot = held.enter_context(self._index.snapshot())
            return self._hold(snapshot.version, snapshot.count, steps(_releasing(snapshot.blocks(), held)))

    def rewrite(self, layers: Layers, steps: Steps) -> Built | None:
        """The rows of these layers, built anew without the index; None when the file under them proved damaged."""
        try:
            return self._write(layers.version, len(layers), steps(layers.blocks()))
        except CacheBroken as error:
            self.condemn(layers.built, error)
            return None
        except OSError as error:
            _log.warning("the vector cache stays in memory: %s", error)
        return self._hold(layers.version, len(layers), steps(layers.blocks()))

    def verify(self, built: Built) -> None:
        """Compare every byte of the file with its checksums; a damaged file is condemned and CacheBroken raised."""
        if built.file is None:
            return
        try:
            built.file.check()
        except CacheBroken as error:
            self.condemn(built, error)
            raise

    def condemn(self, built: Built, error: Exception) -> None:
        """Never believe this file again, and remove it if it still lies there."""
        _log.warning("dropping the vector cache of version %d: %s", built.version, error)
        if built.file is not None:
            built.file.condemned = True
            header = built.file.header
            self._folder.remove(CacheName(FAMILY, header.generation, header.version, header.kind))

    def _write(self, version: int, count: int, blocks: Iterable[VectorRows]) -> Built:
        state = self._index.state()
        dimensions = state.recipe.dimensions
        return _counted(build_file(self._folder, self._engine, state.generation, version, dimensions, blocks), count)

    def _hold(self, version: int, count: int, blocks: Iterable[VectorRows]) -> Built:
        dimensions = self._index.state().recipe.dimensions
        return _counted(build_in_memory(self._engine, version, dimensions, blocks), count)


def _counted(built: Built, count: int) -> Built:
    if len(built.rows) != count:
        raise CacheBroken(f"The index announced {count} vectors and gave {len(built.rows)}.")
    return built


def _releasing(blocks: Iterable[VectorRows], held: contextlib.ExitStack) -> Iterator[VectorRows]:
    """The blocks; once the last was read the snapshot is let go, since deriving from them may take long."""
    yield from blocks
    held.close()
