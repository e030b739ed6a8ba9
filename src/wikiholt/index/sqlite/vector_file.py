"""The file beside an index that contains its vectors: rows are appended and never changed.

A row is the vector of a chunk, or the mean of the vectors of a page with several chunks, which follows the last of
them. Rows are in blocks: first the ids and checksums of a block, then its vectors, so that ids are read without
vectors. The index says how many rows count. Rows behind them were left by a killed writer, and are overwritten.
"""

import contextlib
import json
import mmap
import os
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray, VectorRows
from wikiholt.errors import IndexCorrupt
from wikiholt.index.sqlite.connections import make_storage_error
from wikiholt.regular_files import NotRegularFile, fsync_path, move_away, open_regular, read_regular

MEAN_ID = 0
"""The chunk id of a row with the mean of a page."""
_MAGIC = "wikiholt vectors 1"
_HEADER_BYTES = 4096
_BLOCK_ROWS = 64
_ROW = np.dtype([("chunk_id", "<i8"), ("page_id", "<i8"), ("crc", "<u4"), ("reserved", "<u4")])
_RECHECK_S = 60.0
"""How long the checksum of a row that was read is not computed again."""
_READ_ROWS = 8_192
_READS_PER_RELEASE = 4
"""Reads of rows of a large file until their memory is given back."""
_RELEASED_BYTES = 64 << 20
"""The size of a file from which on memory is given back. Smaller files are read completely by each search."""


@dataclass(frozen=True, slots=True)
class VectorFileHeader:
    """What a file of vectors belongs to."""

    wiki_id: str
    generation: int
    dimensions: int

    @property
    def block_bytes(self) -> int:
        return _BLOCK_ROWS * (_ROW.itemsize + 4 * self.dimensions)

    def encode(self) -> bytes:
        text = json.dumps({"format": _MAGIC, **asdict(self)})
        return f"{text}\n{zlib.crc32(text.encode()):08x}\n".encode().ljust(_HEADER_BYTES, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "VectorFileHeader":
        """Inverse of `encode`. Raises ValueError."""
        text, checksum, _ = data.split(b"\n", 2)
        if len(data) != _HEADER_BYTES or int(checksum, 16) != zlib.crc32(text):
            raise ValueError("the header is damaged")
        fields = json.loads(text)
        if fields.pop("format") != _MAGIC:
            raise ValueError("the format is unknown")
        return cls(**fields)


def read_vector_header(file: Path) -> VectorFileHeader:
    """The header of a file of vectors. Raises IndexCorrupt and StorageError."""
    with _translate_errors():
        return VectorFileHeader.decode(read_regular(file, _HEADER_BYTES))


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """A file that is missing or has another content is damaged. A lack of memory or of open files is no damage."""
    try:
        yield
    except (FileNotFoundError, NotRegularFile, ValueError, KeyError, TypeError) as error:
        raise make_damaged_error(str(error)) from error
    except OSError as error:
        raise make_storage_error(error) from error


def make_damaged_error(reason: str) -> IndexCorrupt:
    return IndexCorrupt(f"the vectors of the index are damaged: {reason}", hint="run `wikiholt sync` to repair it")


def compute_row_checksums(rows: VectorRows) -> NDArray[np.uint32]:
    """The checksum of each row, over its ids and its vector."""
    ids = np.empty(len(rows.chunk_ids), _ROW)
    ids["chunk_id"], ids["page_id"], ids["crc"], ids["reserved"] = rows.chunk_ids, rows.page_ids, 0, 0
    id_bytes = ids.tobytes()
    vector_bytes = memoryview(np.ascontiguousarray(rows.vectors, "<f4").tobytes())
    size, length = _ROW.itemsize, 4 * rows.vectors.shape[1]
    checksums = (
        zlib.crc32(vector_bytes[row * length : (row + 1) * length], zlib.crc32(id_bytes[row * size : (row + 1) * size]))
        for row in range(len(ids))
    )
    return np.fromiter(checksums, np.uint32, len(ids))


def append_rows(file: Path, header: VectorFileHeader, start: int, rows: VectorRows) -> None:
    """Write rows behind the first `start`, in place of what a killed writer left there, and flush them to disk.

    Raises OSError, and IndexCorrupt if the file is not the one that has those rows.
    """
    if start:
        if read_vector_header(file) != header:
            raise make_damaged_error("the file belongs to another index")
    else:
        with contextlib.suppress(FileNotFoundError):
            move_away(file)
    descriptor = open_regular(file, os.O_RDWR | (0 if start else os.O_CREAT), 0o644)
    try:
        if os.fstat(descriptor).st_size < _get_size(header, start) * bool(start):
            raise make_damaged_error("the file is truncated")
        os.ftruncate(descriptor, _get_size(header, start))
        if not start:
            os.pwrite(descriptor, header.encode(), 0)
        os.ftruncate(descriptor, _get_size(header, start + len(rows.chunk_ids)))
        _write_blocks(descriptor, header, start, rows)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    if not start:
        fsync_path(file.parent)


def _write_blocks(descriptor: int, header: VectorFileHeader, start: int, rows: VectorRows) -> None:
    encoded = np.zeros(len(rows.chunk_ids), _ROW)
    encoded["chunk_id"], encoded["page_id"] = rows.chunk_ids, rows.page_ids
    encoded["crc"] = compute_row_checksums(rows)
    vectors = np.ascontiguousarray(rows.vectors, "<f4")
    first = 0
    while first < len(encoded):
        block, row = divmod(start + first, _BLOCK_ROWS)
        part = slice(first, first + _BLOCK_ROWS - row)
        ids_at = _HEADER_BYTES + block * header.block_bytes
        vectors_at = ids_at + _BLOCK_ROWS * _ROW.itemsize
        _write_all(descriptor, encoded[part].tobytes(), ids_at + row * _ROW.itemsize)
        _write_all(descriptor, vectors[part].tobytes(), vectors_at + row * 4 * header.dimensions)
        first = part.stop


def _write_all(descriptor: int, data: bytes, position: int) -> None:
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], position + written)


def count_complete_rows(file: Path, header: VectorFileHeader, count: int) -> int:
    """How many of the first `count` rows a damaged file has."""
    try:
        blocks = (file.stat().st_size - _HEADER_BYTES) // header.block_bytes
    except OSError:
        return 0
    return max(0, min(count, blocks * _BLOCK_ROWS))


def _get_size(header: VectorFileHeader, count: int) -> int:
    """The size of a file with this number of rows: it ends with a complete block."""
    return _HEADER_BYTES + -(-count // _BLOCK_ROWS) * header.block_bytes


class VectorFile:
    """The blocks of a file of vectors that have the first rows, mapped for reading.

    Safe to use from many threads. It stays readable after the file is removed.
    """

    def __init__(self, file: Path, header: VectorFileHeader, count: int) -> None:
        """`count` is the number of rows of the index. Raises IndexCorrupt unless the file has them."""
        self.dimensions = header.dimensions
        self._reads = 0
        blocks = -(-count // _BLOCK_ROWS)
        self.capacity = blocks * _BLOCK_ROWS
        """How many rows these blocks can have. Those that are appended to the last one appear in it."""
        self._map: Any = self._open(file, header, count) if count else bytes(_HEADER_BYTES)
        strides = (header.block_bytes, _ROW.itemsize)
        self._rows = np.ndarray((blocks, _BLOCK_ROWS), _ROW, self._map, _HEADER_BYTES, strides)
        offset, strides = _HEADER_BYTES + _BLOCK_ROWS * _ROW.itemsize, (header.block_bytes, 4 * header.dimensions)
        shape = (blocks, _BLOCK_ROWS, header.dimensions)
        self._vectors: FloatArray = np.ndarray(shape, np.float32, self._map, offset if blocks else 0, (*strides, 4))
        self._checked = np.zeros(self.capacity, np.bool_)
        self._checked_at = time.monotonic()

    @staticmethod
    def _open(file: Path, header: VectorFileHeader, count: int) -> mmap.mmap:
        with _translate_errors(), os.fdopen(open_regular(file), "rb", buffering=0) as stream:
            if VectorFileHeader.decode(os.pread(stream.fileno(), _HEADER_BYTES, 0)) != header:
                raise make_damaged_error("the file belongs to another index")
            return mmap.mmap(stream.fileno(), _get_size(header, count), access=mmap.ACCESS_READ)

    @property
    def is_large(self) -> bool:
        """Whether a search should read only some of the rows."""
        return len(self._map) >= _RELEASED_BYTES

    def ensure_complete(self) -> None:
        """Raise IndexCorrupt if the file was truncated: reading behind its end would end the process (SIGBUS)."""
        if self.capacity and self._map.size() < len(self._map):
            raise make_damaged_error("the file is truncated")

    def read_ids(self, start: int, stop: int) -> tuple[IntArray, IntArray]:
        """The chunk and page ids of the rows from `start` to `stop`."""
        self.ensure_complete()
        first = start // _BLOCK_ROWS
        rows = self._rows[first:].reshape(-1)[start - first * _BLOCK_ROWS : stop - first * _BLOCK_ROWS]
        return rows["chunk_id"].astype(np.int64), rows["page_id"].astype(np.int64)

    def read(self, slots: IntArray) -> FloatArray:
        """The vectors of these rows. Raises IndexCorrupt if one does not match its checksum."""
        self.ensure_complete()
        vectors = self._vectors[slots // _BLOCK_ROWS, slots % _BLOCK_ROWS]
        if time.monotonic() - self._checked_at > _RECHECK_S:
            self._checked, self._checked_at = np.zeros(self.capacity, np.bool_), time.monotonic()
        unchecked = np.flatnonzero(~self._checked[slots])
        if len(unchecked):
            wrong = self._find_damage(slots[unchecked], vectors[unchecked])
            if len(wrong):
                raise make_damaged_error(f"{len(wrong)} rows do not match their checksums")
            self._checked[slots] = True
        self._release_memory()
        return vectors

    def read_intact(self, slots: IntArray) -> tuple[IntArray, FloatArray]:
        """Those of the rows that match their checksums, with their vectors."""
        self.ensure_complete()
        vectors = self._vectors[slots // _BLOCK_ROWS, slots % _BLOCK_ROWS]
        intact = ~np.isin(slots, self._find_damage(slots, vectors))
        return slots[intact], vectors[intact]

    def count_damaged(self, slots: IntArray) -> int:
        """How many of these rows do not match their checksums. Reads all of them."""
        self.ensure_complete()
        parts = (slots[start : start + _READ_ROWS] for start in range(0, len(slots), _READ_ROWS))
        return sum(len(part) - len(self.read_intact(part)[0]) for part in parts)

    def score(self, vector: FloatArray, start: int, stop: int) -> FloatArray:
        """The product of each row from `start` to `stop` with a vector. Checksums are not compared.

        `numpy.vecdot` sums every row in the same order at any position, so equal vectors get equal scores.
        """
        self.ensure_complete()
        first, (last, late) = start // _BLOCK_ROWS, divmod(stop, _BLOCK_ROWS)
        # Not the rows behind `stop`: they may be a hole, and a full disk in memory cannot allocate it (SIGBUS).
        parts = self._vectors[first:last], self._vectors[last : last + 1, :late]
        scores: FloatArray = np.concatenate([np.vecdot(part, vector).reshape(-1) for part in parts])
        return scores[start - first * _BLOCK_ROWS :]

    def iter_vectors(self, count: int, block_rows: int) -> Iterator[FloatArray]:
        """Yield the vectors of the first `count` rows in blocks. Checksums are not compared."""
        for start in range(0, count, block_rows):
            yield self.sample(np.arange(start, min(count, start + block_rows)))

    def sample(self, slots: IntArray) -> FloatArray:
        """The vectors of these rows. Checksums are not compared."""
        self.ensure_complete()
        return self._vectors[slots // _BLOCK_ROWS, slots % _BLOCK_ROWS]

    def _find_damage(self, slots: IntArray, vectors: FloatArray) -> IntArray:
        stored = self._rows[slots // _BLOCK_ROWS, slots % _BLOCK_ROWS]
        computed = compute_row_checksums(VectorRows(stored["chunk_id"], stored["page_id"], vectors))
        damaged: IntArray = slots[computed != stored["crc"]]
        return damaged

    def _release_memory(self) -> None:
        """Sometimes give back the memory of rows that were read.

        Each brings its neighbours into the memory of the process, in the end the complete file.
        """
        self._reads += 1
        if self.is_large and self._reads % _READS_PER_RELEASE == 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)
