"""The mark that the last writer of an index leaves in its write lock: sizes and times of the files, and checksums.

There is one checksum for each block of the index file (what SQLite calls a page). A writer takes the checksums of the
last mark over and replaces those of the blocks in the log, so that a small change does not read the complete file, and
damage in another block stays visible. A damaged mark counts as missing: the next writer then reads the complete index.
"""

import os
import struct
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.errors import Busy, IndexUnavailable, StorageError
from wikiholt.regular_files import open_regular, read_regular
from wikiholt.storage.sqlite import schema
from wikiholt.storage.sqlite.errors import translate_errors

COMPARED_BYTES = 64 << 20
"""Larger indexes have no checksums: comparing would take longer than syncing one page."""
_NO_CHECKSUM = "-"
_LINE_END = b"\n"
_LOG_HEADER = struct.Struct(">8I")
_FRAME_HEADER_BYTES = 24
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_MAX_BLOCK_BYTES = 65_536
_MULTIPLIER = 0x9E3779B97F4A7C15
"""An odd number, so that each of its powers is odd: a change of a single word always changes the sum."""
_BLOCKS_AT_A_TIME = 128

Checksums = NDArray[np.uint64]
UNREADABLE: Checksums = np.zeros(0, np.uint64)
"""The checksums of a damaged index."""


@dataclass(frozen=True, slots=True, eq=False)
class FileMark:
    """What the last writer left."""

    stamp: str = ""
    """The change token of the index."""
    checksums: Checksums | None = None
    """None if the index is too large."""

    def has_checksums(self, checksums: Checksums | None) -> bool:
        """Whether these are the recorded checksums."""
        if checksums is None or self.checksums is None:
            return checksums is self.checksums
        return np.array_equal(checksums, self.checksums)


def read_mark(file: Path) -> FileMark:
    try:
        line, _, data = read_regular(file).partition(_LINE_END)
        text, mark_checksum = line.decode("ascii").rsplit("; ", 1)
        stamp, kind = text.rsplit("; ", 1)
        if int(mark_checksum, 16) != _compute_mark_checksum(text, data):
            return FileMark()
        checksums = None if kind == _NO_CHECKSUM else np.frombuffer(data, "<u8").astype(np.uint64, copy=False)
        return FileMark(stamp, checksums)
    except (OSError, ValueError):
        return FileMark()


def write_mark(file: Path, mark: FileMark) -> None:
    """Write the mark to an existing file. Errors are ignored: the next writer then reads the complete index."""
    data = b"" if mark.checksums is None else mark.checksums.astype("<u8", copy=False).tobytes()
    kind = _NO_CHECKSUM if mark.checksums is None else "blocks"
    text = f"{mark.stamp}; {kind}"
    content = f"{text}; {_compute_mark_checksum(text, data):08x}".encode() + _LINE_END + data
    with suppress(OSError):
        descriptor = open_regular(file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, content, 0)
            os.ftruncate(descriptor, len(content))
        finally:
            os.close(descriptor)


def _compute_mark_checksum(text: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(text.encode()))


def compute_checksums(file: Path) -> Checksums | None:
    """The checksums of an index as SQLite reads it; None if it is too large or missing, UNREADABLE if it is damaged.

    It is read through SQLite. Closing any other descriptor of the file would release the locks that connections of this
    process hold, and another process could then remove the log that they use.
    """
    try:
        if is_too_large(file) or not count_bytes(file):
            return None
        with closing(schema.open_connection(file)) as db, translate_errors():
            db.execute("BEGIN")
            block_bytes = int(db.execute("PRAGMA page_size").fetchone()[0])
            return sum_blocks(np.frombuffer(db.serialize(), np.uint8).reshape(-1, block_bytes))
    except (OSError, StorageError, Busy):
        return None
    except (IndexUnavailable, ValueError):
        return UNREADABLE


def update_checksums(checksums: Checksums, log: Path) -> Checksums | None:
    """The checksums after the changes in the log are applied to the file; None if the log cannot be read.

    The log must contain all changes since the file had these checksums.
    """
    try:
        data = read_regular(log, COMPARED_BYTES)
        if len(data) != log.stat().st_size:
            return None
        magic, _, block_bytes, _, *salts, _, _ = _LOG_HEADER.unpack_from(data)
    except (OSError, struct.error):
        return None
    block_bytes = _MAX_BLOCK_BYTES if block_bytes == 1 else block_bytes
    if magic not in _LOG_MAGIC or not block_bytes or block_bytes % 8:
        return None
    frames = _read_frames(data, block_bytes)
    headers = np.ascontiguousarray(frames[:, :16]).view(">u4")
    foreign = np.flatnonzero((headers[:, 2:] != salts).any(axis=1))  # frames of an earlier use of the log
    numbers, sizes = headers[: foreign[0] if len(foreign) else None, :2].T.astype(np.int64)
    commits = np.flatnonzero(sizes)
    if not len(commits):
        return checksums  # a transaction that was rolled back
    committed = slice(commits[-1] + 1)
    size = int(sizes[commits[-1]])
    # The last frame of a block counts; numpy assigns in order.
    updated = np.zeros(max(size, len(checksums), int(numbers[committed].max())), np.uint64)
    updated[: len(checksums)] = checksums
    updated[numbers[committed] - 1] = sum_blocks(frames[committed, _FRAME_HEADER_BYTES:])
    return updated[:size]


def _read_frames(data: bytes, block_bytes: int) -> NDArray[np.uint8]:
    frame_bytes = _FRAME_HEADER_BYTES + block_bytes
    count = (len(data) - _LOG_HEADER.size) // frame_bytes
    return np.frombuffer(data, np.uint8, count * frame_bytes, _LOG_HEADER.size).reshape(count, frame_bytes)


def sum_blocks(blocks: NDArray[Any]) -> Checksums:
    """One number for each row of bytes: the sum of its words of 32 bits, each multiplied by its own odd number."""
    words = np.ascontiguousarray(blocks).view("<u4")
    factors = np.multiply.accumulate(np.full(words.shape[1], _MULTIPLIER, np.uint64))
    sums = np.empty(len(words), np.uint64)
    for start in range(0, len(words), _BLOCKS_AT_A_TIME):
        part = slice(start, start + _BLOCKS_AT_A_TIME)
        sums[part] = words[part].astype(np.uint64) @ factors
    return sums


def is_too_large(file: Path) -> bool:
    """Whether an index has no checksums because of its size. Raises OSError."""
    return count_bytes(file) > COMPARED_BYTES


def count_bytes(file: Path) -> int:
    """The size of an index file and its log. Raises OSError."""
    log = file.with_name(file.name + "-wal")
    return sum(part.stat().st_size for part in (file, log) if part.exists())
