"""Makes the rows of a cache: into a file where the folder allows it, in memory where it does not; and opens files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from wikiholt.cachefile.faults import CacheBroken
from wikiholt.cachefile.file import MappedFile, SectionWriter
from wikiholt.cachefile.folder import CacheName, Folder
from wikiholt.model import Ints, VectorRows
from wikiholt.vectors.engine import Array, Engine, floats
from wikiholt.vectors.layers import Built
from wikiholt.vectors.rows import Rows, require_unit

FAMILY = "vectors"
_ROWS = ("chunks", "pages")


def build_file(
    folder: Folder, engine: Engine, generation: int, version: int, dimensions: int, blocks: Iterable[VectorRows]
) -> Built:
    """Write the rows and what the engine derives from them to a file, and open it; raises OSError if it cannot."""
    name = CacheName(FAMILY, generation, version, engine.kind)
    with folder.writing(name) as file:
        writer = SectionWriter(file)
        chunk_ids, page_ids = [], []
        writer.write("vectors", np.empty(0, np.float32))
        for block in blocks:
            require_unit(block.vectors, block.chunk_ids)
            writer.write("vectors", np.asarray(block.vectors, np.float32))
            chunk_ids.append(block.chunk_ids)
            page_ids.append(block.page_ids)
        count = sum(map(len, chunk_ids))
        writer.write("chunks", _joined(chunk_ids))
        writer.write("pages", _joined(page_ids))
        if count > engine.scan_below:
            for section, part in engine.derive(writer.written("vectors", dimensions)):
                writer.write(section, part)
        writer.finish(engine.kind, folder.owner, generation, version, {"dimensions": dimensions, "count": count})
        # Opened before it has its name: from then on another process may replace or remove it.
        built = open_file(Path(file.name), folder.owner, name, engine, dimensions, trusted=True)
    folder.remove_before(name)
    return built


def build_in_memory(engine: Engine, version: int, dimensions: int, blocks: Iterable[VectorRows]) -> Built:
    """The same without a file."""
    kept = list(blocks)
    vectors = np.concatenate([np.empty((0, dimensions), np.float32), *(block.vectors for block in kept)])
    chunk_ids, page_ids = _joined([b.chunk_ids for b in kept]), _joined([b.page_ids for b in kept])
    require_unit(vectors, chunk_ids)
    finder = None
    if len(vectors) > engine.scan_below:
        parts: dict[str, list[Array]] = {}
        for section, part in engine.derive(vectors):
            parts.setdefault(section, []).append(part)
        finder = engine.finder({name: _bytes(part) for name, part in parts.items()}, len(vectors), dimensions)
    return Built(version, Rows(chunk_ids, page_ids, vectors), finder, None)


def open_file(
    path: Path, owner: str, name: CacheName, engine: Engine, dimensions: int, *, trusted: bool = False
) -> Built:
    """Map a file of this owner and check what is cheap to check; raises CacheBroken or OSError."""
    file = MappedFile(path)
    header = file.header
    if header.owner != owner:
        raise CacheBroken(f"The vector cache {name} belongs to another wiki.")
    count = header.about.get("count")
    expected = (name.kind, name.generation, name.version, {"dimensions": dimensions, "count": count})
    if (header.kind, header.generation, header.version, header.about) != expected or not isinstance(count, int):
        raise CacheBroken(f"The vector cache {name} does not hold what its name says.")
    scanned = count <= engine.scan_below
    if not trusted:
        # Rows that are scanned whole are few, and a row that was lost from the scan would not be missed.
        file.check((*_ROWS, "vectors") if scanned else (*_ROWS, *engine.checked))
    try:
        chunk_ids, page_ids = (np.frombuffer(file.section(section), np.int64) for section in _ROWS)
        rows = Rows(chunk_ids, page_ids, floats(file.section("vectors"), count, dimensions))
        if len(chunk_ids) != count or len(page_ids) != count:
            raise ValueError("rows and ids differ in number")
        sections = {section.name: file.section(section.name) for section in header.sections}
        finder = None if scanned else engine.finder(sections, count, dimensions)
    except (ValueError, KeyError) as error:
        raise CacheBroken(f"The vector cache {name} makes no sense: {error}.") from error
    return Built(header.version, rows, finder, file)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _bytes(parts: list[Any]) -> memoryview:
    return np.concatenate(parts).reshape(-1).view(np.uint8).data
