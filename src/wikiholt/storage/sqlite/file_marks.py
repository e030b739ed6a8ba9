"""The mark that the last writer of an index leaves: sizes and times of its files, and a checksum of their bytes.

A damaged mark counts as missing: the next writer then reads the complete index.
"""

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.regular_files import open_regular, read_regular

COMPARED_BYTES = 64 << 20
"""Larger indexes have no checksum: comparing would take longer than syncing one page."""
_STEP_BYTES = 1 << 20
_NO_CHECKSUM = "-"


@dataclass(frozen=True, slots=True)
class FileMark:
    """The change token of an index, and the checksum of its files; None if they are too large."""

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


def compute_checksum(files: Sequence[Path]) -> int | None:
    """The checksum of the existing files' bytes; None if they are too large or unreadable."""
    try:
        if count_bytes(files) > COMPARED_BYTES:
            return None
        crc = 0
        for file in files:
            crc = _update_checksum(file, crc) if file.exists() else crc
    except OSError:
        return None
    return crc


def count_bytes(files: Sequence[Path]) -> int:
    return sum(file.stat().st_size for file in files if file.exists())


def _update_checksum(file: Path, crc: int) -> int:
    block = bytearray(_STEP_BYTES)
    view = memoryview(block)
    with open(file, "rb", buffering=0, opener=_open_nonblocking) as opened:
        while count := opened.readinto(block):
            crc = zlib.crc32(view[:count], crc)
    return crc


def _open_nonblocking(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)


def _compute_mark_checksum(stamp: str, checksum: str) -> int:
    return zlib.crc32(f"{stamp}; {checksum}".encode())
