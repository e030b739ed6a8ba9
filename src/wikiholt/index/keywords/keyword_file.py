"""The keyword file of a generation: postings that are written once, replaced as a whole, and mapped for reading.

The header names wiki and generation, and has a checksum of itself and one of all else. The modification time is set
back after writing, so that any later change is noticed.
"""

import fcntl
import json
import mmap
import os
import time
import weakref
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from wikiholt.errors import IndexUnavailable
from wikiholt.index.keywords.postings import Postings, Vocabulary
from wikiholt.regular_files import fsync_path, open_regular
from wikiholt.text.bm25 import FIELD_WEIGHTS

_MAGIC = b"WHWORDS\0"
_LAYOUT = [1, *FIELD_WEIGHTS]
"""The first number is incremented when the meaning of the arrays changes."""
_HEADER_BYTES = 4096
_READ_BYTES = 1 << 20
_BACKDATE_NS = 3_600_000_000_000

_TYPES = {
    "ends": "<i8",
    "offsets": "<i8",
    "page_keys": "<i8",
    "lengths": "<i8",
    "rows": "<i4",
    "counts": "<f4",
    "text": "|u1",
}
"""The arrays in their order. Those of large numbers come first, so that all are aligned."""


class CacheBroken(IndexUnavailable):
    """The keyword file is damaged or cannot be used. It is removed and built again from the index."""

    code = "cache-broken"


class KeywordFile:
    """A mapped keyword file with a verified checksum. It stays readable after it is removed or replaced."""

    def __init__(self, path: Path, owner: str, generation: int) -> None:
        """Raises CacheBroken for a file that cannot be used, and OSError."""
        self._path = path
        self._descriptor = open_regular(path)
        weakref.finalize(self, os.close, self._descriptor)
        self._status = os.fstat(self._descriptor)
        header = _read_header(self._descriptor)
        if (header["owner"], header["generation"]) != (owner, generation):
            raise _make_error("belongs to another wiki or generation")
        self._checksum = header["checksum"]
        self.verify()
        content = mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        arrays, offset = {}, _HEADER_BYTES
        for (name, kind), count in zip(_TYPES.items(), header["counts"], strict=True):
            arrays[name] = np.frombuffer(content, kind, count, offset)
            offset += arrays[name].nbytes
        self.postings = Postings(Vocabulary(arrays.pop("text"), arrays.pop("ends")), **arrays)

    def ensure_unchanged(self) -> None:
        """Raise CacheBroken if the file changed since it was opened: reading a truncated map kills the process."""
        status = os.fstat(self._descriptor)
        if (status.st_size, status.st_mtime_ns) != (self._status.st_size, self._status.st_mtime_ns):
            raise _make_error("was changed while in use")

    def verify(self) -> None:
        """Raise CacheBroken if the file differs from its checksum."""
        # Not read from the map, whose blocks would stay in the memory of the process.
        checksum, offset = 0, _HEADER_BYTES
        while block := os.pread(self._descriptor, _READ_BYTES, offset):
            checksum, offset = zlib.crc32(block, checksum), offset + len(block)
        if checksum != self._checksum:
            raise _make_error("is damaged")

    def is_replaced(self) -> bool:
        """Whether the path leads to another file now."""
        with suppress(OSError):
            return os.lstat(self._path).st_ino != self._status.st_ino
        return False


def read_keyword_file_owner(path: Path) -> str:
    """Return the id of the wiki that the file names as its owner. Raises CacheBroken and OSError."""
    descriptor = open_regular(path)
    try:
        return str(_read_header(descriptor)["owner"])
    finally:
        os.close(descriptor)


def open_draft(path: Path) -> BinaryIO:
    """Open the draft of a keyword file, which one process at a time has. Raises BlockingIOError and other OSErrors.

    The directory is never created: if it is gone, the wiki was removed and must not reappear.
    """
    draft = _get_draft(path)
    file = os.fdopen(open_regular(draft, os.O_RDWR | os.O_CREAT, 0o644), "r+b")
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Another process may have renamed the draft before the lock was taken.
        if os.path.samestat(os.fstat(file.fileno()), os.lstat(draft)):
            return file
    file.close()
    raise BlockingIOError("another process writes the keyword file")


def write_keyword_file(draft: BinaryIO, path: Path, owner: str, generation: int, postings: Postings) -> KeywordFile:
    """Write the draft, rename it and open the file. Removes the draft if that fails, and raises OSError."""
    terms = postings.terms
    sources = {"ends": terms.ends, "text": terms.text}
    arrays = [np.ascontiguousarray(sources.get(name, getattr(postings, name, None)), _TYPES[name]) for name in _TYPES]
    checksum = 0
    try:
        draft.seek(_HEADER_BYTES)
        for content in arrays:
            checksum = zlib.crc32(content.view(np.uint8).data, checksum)
            draft.write(content.view(np.uint8).data)
        draft.truncate()
        fields = {"owner": owner, "generation": generation, "checksum": checksum, "counts": [*map(len, arrays)]}
        text = json.dumps({"layout": _LAYOUT, **fields}).encode()
        draft.seek(0)
        draft.write((_MAGIC + zlib.crc32(text).to_bytes(4, "little") + text).ljust(_HEADER_BYTES, b"\0"))
        draft.flush()
        os.fsync(draft.fileno())
        written_at = time.time_ns() - _BACKDATE_NS
        os.utime(draft.fileno(), ns=(written_at, written_at))
        _get_draft(path).replace(path)
    except BaseException:
        with suppress(OSError):
            _get_draft(path).unlink()
        raise
    with suppress(OSError):
        fsync_path(path.parent)
    return KeywordFile(path, owner, generation)


def _get_draft(path: Path) -> Path:
    return path.with_name(path.name + ".writing")


def _read_header(descriptor: int) -> dict[str, Any]:
    block = os.pread(descriptor, _HEADER_BYTES, 0)
    text = block[12:].rstrip(b"\0")
    if block[:8] != _MAGIC or zlib.crc32(text) != int.from_bytes(block[8:12], "little"):
        raise _make_error("has no valid header")
    header: dict[str, Any] = json.loads(text)
    if header["layout"] != _LAYOUT:
        raise _make_error("was written with another layout")
    return header


def _make_error(fault: str) -> CacheBroken:
    return CacheBroken(f"The keyword file {fault}.", hint="no action needed: it is built again from the index")
