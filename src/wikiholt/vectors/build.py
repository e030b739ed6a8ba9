"""Makes the rows of a cache: into a file where the folder allows it, in memory where it does not; and opens files."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from wikiholt.cachefile.faults import CacheBroken
from wikiholt.cachefile.file import MappedFile, SectionWriter
from wikiholt.cachefile.folder import CacheFileName, CacheDirectory
from wikiholt.model import IntArray, VectorRows
from wikiholt.vectors.engine import Array, CandidateEngine, to_float_array
from wikiholt.vectors.layers import BuiltRows
from wikiholt.vectors.rows import VectorTable, check_unit_length

CACHE_FAMILY = "vectors"
_ID_SECTIONS = ("chunks", "pages")


def build_file(
    directory: CacheDirectory, engine: CandidateEngine, generation: int, version: int, dimensions: int, blocks: Iterable[VectorRows]
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
        finder = engine.open_finder({name: _concatenate_bytes(part) for name, part in parts.items()}, len(vectors), dimensions)
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
