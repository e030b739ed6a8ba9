"""The mark that the last writer of an index leaves: sizes and times of its files, and a checksum of its content.

A damaged mark counts as missing: the next writer then reads the complete index.
"""

import os
import zlib
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.errors import Busy, IndexUnavailable, StorageError
from wikiholt.regular_files import open_regular, read_regular
from wikiholt.storage.sqlite import schema
from wikiholt.storage.sqlite.errors import translate_errors

COMPARED_BYTES = 64 << 20
"""Larger indexes have no checksum: comparing would take longer than syncing one page."""
_UNREADABLE = -1
_NO_CHECKSUM = "-"


@dataclass(frozen=True, slots=True)
class FileMark:
    """The change token of an index, and the checksum of its content; None if it is too large."""

    stamp: str = ""
    checksum: int | None = None


def read_mark(file: Path) -> FileMark:
    try:
        stamp, checksum, mark_checksum = read_regular(file).decode("ascii").strip().rsplit("; ", 2)
        if int(mark_checksum, 16) != _compute_mark_checksum(stamp, checksum):
            return FileMark()
        return FileMark(stamp, None if checksum == _NO_CHECKSUM else int(checksum, 16))
    except (OSError, ValueError):
        return FileMark()


def write_mark(file: Path, mark: FileMark) -> None:
    """Write the mark to an existing file. Errors are ignored: the next writer then reads the complete index."""
    checksum = _NO_CHECKSUM if mark.checksum is None else f"{mark.checksum:08x}"
    text = f"{mark.stamp}; {checksum}; {_compute_mark_checksum(mark.stamp, checksum):08x}".encode()
    with suppress(OSError):
        descriptor = open_regular(file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)


def compute_checksum(file: Path) -> int | None:
    """The checksum of an index as SQLite reads it; None if it is too large or missing, `_UNREADABLE` if it is damaged.

    It is read through SQLite. Closing any other descriptor of the file would release the locks that connections of this
    process hold, and another process could then remove the log that they use.
    """
    try:
        if not 0 < count_bytes(file) <= COMPARED_BYTES:
            return None
        with closing(schema.open_connection(file)) as db, translate_errors():
            db.execute("BEGIN")
            return zlib.crc32(db.serialize())
    except (OSError, StorageError, Busy):
        return None
    except IndexUnavailable:
        return _UNREADABLE


def count_bytes(file: Path) -> int:
    """The size of an index file and its log. Raises OSError."""
    log = file.with_name(file.name + "-wal")
    return sum(part.stat().st_size for part in (file, log) if part.exists())


def _compute_mark_checksum(stamp: str, checksum: str) -> int:
    return zlib.crc32(f"{stamp}; {checksum}".encode())
