"""How the last writer left an index: sizes and times of its files, and a checksum of every byte of them.

A mark that is damaged counts as none: then the next writer reads the whole index.
"""

import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wikiholt.regular_files import open_regular, read_regular

COMPARED_BYTES = 64 << 20
"""Larger indexes have no checksum of their bytes: to compare them would take longer than a sync of one page."""
_STEP_BYTES = 1 << 20
_NONE = "-"


@dataclass(frozen=True, slots=True)
class FileMark:
    """The stamp of an index, and the checksum of its files' bytes; None for one that is too large."""

    stamp: str = ""
    checksum: int | None = None


def read_mark(file: Path) -> FileMark:
    try:
        stamp, checksum, own = read_regular(file).decode("ascii").strip().rsplit("; ", 2)
        if int(own, 16) != _compute_mark_checksum(stamp, checksum):
            return FileMark()
        return FileMark(stamp, None if checksum == _NONE else int(checksum, 16))
    except (OSError, ValueError):
        return FileMark()


def write_mark(file: Path, mark: FileMark) -> None:
    """Leave the mark in a file that exists; one that cannot be written only makes the next writer read everything."""
    checksum = _NONE if mark.checksum is None else f"{mark.checksum:08x}"
    text = f"{mark.stamp}; {checksum}; {_compute_mark_checksum(mark.stamp, checksum):08x}".encode()
    with suppress(OSError):
        descriptor = open_regular(file, os.O_WRONLY)
        try:
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        finally:
            os.close(descriptor)


def compute_checksum(files: Sequence[Path]) -> int | None:
    """The checksum of the bytes of those files that are there; None when they are too large or cannot be read."""
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
    with open(file, "rb", buffering=0, opener=_open_without_waiting) as opened:
        while count := opened.readinto(block):
            crc = zlib.crc32(view[:count], crc)
    return crc


def _open_without_waiting(file: str, flags: int) -> int:
    return os.open(file, flags | os.O_NONBLOCK)


def _compute_mark_checksum(stamp: str, checksum: str) -> int:
    return zlib.crc32(f"{stamp}; {checksum}".encode())
