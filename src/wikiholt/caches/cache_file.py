"""Files of derived caches: their format, their directory, and the errors that make a search fall back to the index.

A file is written once under its final name and never changed, so any number of processes may map it.
"""

import contextlib
import fcntl
import json
import logging
import mmap
import os
import re
import secrets
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray
from wikiholt.errors import IndexUnavailable
from wikiholt.regular_files import fsync_path, move_away, open_regular

_LOG = logging.getLogger(__name__)


class CacheNotReady(IndexUnavailable):
    """The cache has no version yet: it is being built, or it was closed."""

    code = "cache-not-ready"


class CacheBroken(IndexUnavailable):
    """The cache file is damaged. It is removed, and the next refresh rebuilds it."""

    code = "cache-broken"


# File format: a header with a checksum, then named sections, each with its own checksum. The mtime is backdated after
# writing, so any later modification is detectable.


MAGIC = b"WHDERIVE"
FORMAT_VERSION = 2
"""Version 2 added the owner."""
ALIGNMENT_BYTES = 4096
_REBUILD_HINT = "no action needed: the cache is rebuilt from the index"
_CHECKSUM_BLOCK_BYTES = 1 << 20
_READS_PER_RELEASE = 4
_COPY_MAX_BYTES = 256 << 10
"""A file up to this size is read into memory: a mapped file needs two descriptors, too many for thousands of wikis."""
_BACKDATE_NS = 3_600_000_000_000


@dataclass(frozen=True, slots=True)
class FileSection:
    """Offset and length of a section, and the CRC-32 of its bytes."""

    name: str
    offset: int
    length: int
    crc: int


@dataclass(frozen=True, slots=True)
class CacheFileHeader:
    """The header of a cache file."""

    kind: str
    owner: str
    """The id of the wiki that the file belongs to."""
    generation: int
    version: int
    about: Mapping[str, Any]
    """Fields of the kind of cache (counts, dimensions) that must match before the file is used."""
    size: int
    sections: tuple[FileSection, ...]

    def encode(self) -> bytes:
        """Return the first block of the file."""
        text = json.dumps({"format": FORMAT_VERSION, **asdict(self)}, separators=(",", ":")).encode()
        block = MAGIC + len(text).to_bytes(4, "little") + zlib.crc32(text).to_bytes(4, "little") + text
        if len(block) > ALIGNMENT_BYTES:
            raise ValueError("the header does not fit its block")
        return block.ljust(ALIGNMENT_BYTES, b"\0")

    @classmethod
    def decode(cls, block: bytes) -> "CacheFileHeader":
        """Parse the first block of a file. Raises CacheBroken if it is invalid."""
        length = int.from_bytes(block[8:12], "little")
        text = block[16 : 16 + length]
        if block[:8] != MAGIC or len(block) != ALIGNMENT_BYTES or len(text) != length:
            raise CacheBroken("The cache has no valid header.", hint=_REBUILD_HINT)
        if zlib.crc32(text) != int.from_bytes(block[12:16], "little"):
            raise CacheBroken("The header of the cache is damaged.", hint=_REBUILD_HINT)
        fields = json.loads(text)
        if fields.pop("format", None) != FORMAT_VERSION:
            raise CacheBroken("The cache was written in another format.", hint=_REBUILD_HINT)
        sections = tuple(FileSection(**section) for section in fields.pop("sections"))
        return cls(**fields, sections=sections)


_WRITE_BYTES = 128 * 1024
"""Bytes of a write. Linux maps what was written at once as a whole, also for a reader that needs one row of it."""


class SectionWriter:
    """Writes sections in sequence into an open, empty file. `finish` makes the file durable."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._sections: list[FileSection] = []
        self._file.seek(ALIGNMENT_BYTES)

    def write(self, name: str, data: NDArray[Any]) -> None:
        """Append to a section. A section cannot be continued after another one was started."""
        content = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        if self._sections and self._sections[-1].name == name:
            last = self._sections.pop()
        else:
            offset = -(-self._file.tell() // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            self._file.seek(offset)
            last = FileSection(name, offset, 0, 0)
        for start in range(0, len(content), _WRITE_BYTES):
            self._file.write(content[start : start + _WRITE_BYTES])
        self._sections.append(
            FileSection(name, last.offset, last.length + len(content), zlib.crc32(content, last.crc)),
        )

    def read_floats(self, name: str, width: int) -> FloatArray:
        """Return the rows of a float section, mapped from the unfinished file."""
        self._file.flush()
        section = next(section for section in self._sections if section.name == name)
        if not section.length:
            return np.empty((0, width), np.float32)
        view = mmap.mmap(self._file.fileno(), section.offset + section.length, access=mmap.ACCESS_READ)
        return np.frombuffer(view, np.float32, section.length // 4, section.offset).reshape(-1, width)

    def finish(self, kind: str, owner: str, generation: int, version: int, about: Mapping[str, Any]) -> CacheFileHeader:
        """Write the header and flush the file to disk."""
        end = max((section.offset + section.length for section in self._sections), default=0)
        size = max(end, ALIGNMENT_BYTES)
        header = CacheFileHeader(kind, owner, generation, version, about, size, tuple(self._sections))
        self._file.seek(0)
        self._file.write(header.encode())
        self._file.truncate(size)
        self._file.flush()
        os.fsync(self._file.fileno())
        backdated = time.time_ns() - _BACKDATE_NS
        os.utime(self._file.fileno(), ns=(backdated, backdated))
        return header


class MappedFile:
    """A cache file mapped for reading, or a copy of a small one. It stays readable after the file is removed."""

    def __init__(self, path: Path, final_path: Path | None = None) -> None:
        """`final_path` is the name that the file gets later, if `path` is temporary."""
        self.path = final_path or path
        self.invalid = False
        self._reads = 0
        descriptor = open_regular(path)
        close = weakref.finalize(self, os.close, descriptor)
        self._descriptor: int | None = descriptor
        self._map: mmap.mmap | bytes
        try:
            self.header = CacheFileHeader.decode(os.pread(descriptor, ALIGNMENT_BYTES, 0))
            status = os.fstat(descriptor)
            if status.st_size != self.header.size:
                raise CacheBroken("The cache file is truncated.", hint=_REBUILD_HINT)
            if status.st_size <= _COPY_MAX_BYTES:
                self._map = self._read_copy(descriptor)
                self._descriptor = None
                close()
            else:
                self._map = mmap.mmap(descriptor, self.header.size, access=mmap.ACCESS_READ)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CacheBroken("The header of the cache is invalid.", hint=_REBUILD_HINT) from error
        self._inode = status.st_ino
        self._opened_status = (status.st_size, status.st_mtime_ns)
        self._sections = {section.name: section for section in self.header.sections}
        if any(s.offset < ALIGNMENT_BYTES or s.offset + s.length > self.header.size for s in self.header.sections):
            raise CacheBroken("A section of the cache exceeds the file.", hint=_REBUILD_HINT)

    def get_section(self, name: str) -> memoryview:
        """Return the bytes of a section. Raises CacheBroken if it is missing."""
        section = self._find_section(name)
        return memoryview(self._map)[section.offset : section.offset + section.length]

    def count_read(self, *names: str) -> None:
        """Count a search that read some rows of sections, and sometimes give the memory of these sections back.

        Each row that is read brings its neighbours into the memory of the process, in the end the complete file.
        """
        self._reads += 1
        if self._reads % _READS_PER_RELEASE or not isinstance(self._map, mmap.mmap):
            return
        for section in map(self._find_section, names):
            if section.length and hasattr(mmap, "MADV_DONTNEED") and not section.offset % mmap.PAGESIZE:
                self._map.madvise(mmap.MADV_DONTNEED, section.offset, section.length)

    def verify_checksums(self, names: Iterable[str] | None = None) -> None:
        """Verify the checksums of these sections, or of all. Raises CacheBroken on a mismatch."""
        for name in self._sections if names is None else names:
            crc = 0
            for block in self._read_blocks(name):
                crc = zlib.crc32(block, crc)
            if crc != self._find_section(name).crc:
                raise CacheBroken(f"Section {name!r} of the cache is damaged.", hint=_REBUILD_HINT)

    def ensure_unchanged(self) -> None:
        """Raise CacheBroken if the file changed since it was opened: reading a truncated map kills the process."""
        status = self._get_status()
        if self.invalid or (status is not None and (status.st_size, status.st_mtime_ns) != self._opened_status):
            raise CacheBroken("The cache file was changed while in use.", hint=_REBUILD_HINT)

    def _find_section(self, name: str) -> FileSection:
        """The section; a file of an older version may have none of this name, and raises CacheBroken."""
        section = self._sections.get(name)
        if section is None:
            raise CacheBroken(f"Section {name!r} of the cache is missing.", hint=_REBUILD_HINT)
        return section

    def _get_status(self) -> os.stat_result | None:
        """The status of the file; None if a copied file was replaced or removed."""
        if self._descriptor is not None:
            return os.fstat(self._descriptor)
        try:
            status = self.path.lstat()
        except OSError:
            return None
        return status if status.st_ino == self._inode else None

    def _read_copy(self, descriptor: int) -> bytes:
        content = os.pread(descriptor, self.header.size, 0)
        if len(content) != self.header.size:
            raise CacheBroken("The cache file is truncated.", hint=_REBUILD_HINT)
        return content

    def _read_blocks(self, name: str) -> Iterator[bytes | memoryview]:
        """A section as it is in the file now, or as it was copied if that file is gone. Raises CacheBroken.

        It is not read from the map, whose pages would stay in the memory of the process.
        """
        section = self._find_section(name)
        end = section.offset + section.length
        with contextlib.ExitStack() as stack:
            descriptor = self._descriptor
            if descriptor is None:
                descriptor = self._open_again()
                if descriptor is None:
                    yield self.get_section(name)
                    return
                stack.callback(os.close, descriptor)
            for start in range(section.offset, end, _CHECKSUM_BLOCK_BYTES):
                self.ensure_unchanged()
                try:
                    yield os.pread(descriptor, min(_CHECKSUM_BLOCK_BYTES, end - start), start)
                except OSError as error:
                    raise CacheBroken(f"The cache file cannot be read: {error}", hint=_REBUILD_HINT) from error

    def _open_again(self) -> int | None:
        """A descriptor of a copied file; None if it was replaced or cannot be opened."""
        if self._get_status() is None:
            return None
        try:
            return open_regular(self.path)
        except OSError:
            return None


# The directory of a cache, shared by any number of processes. A file appears by an atomic rename. Its writer holds a
# lock on the temporary file, so leftovers of a killed writer can be distinguished from work in progress.


_FILE_NAME_PATTERN = re.compile(r"([a-z]+)-g(\d{6,18})-v(\d{1,18})\.([a-z]+)")
_TEMPORARY_SUFFIX = ".writing"


def is_cache_file_name(name: str) -> bool:
    """Whether a finished cache file has such a name."""
    return _FILE_NAME_PATTERN.fullmatch(name) is not None


def read_cache_owner(file: Path) -> str:
    """The id of the wiki that a cache file names as its owner. Raises CacheBroken."""
    return MappedFile(file).header.owner


@dataclass(frozen=True, slots=True)
class CacheFileName:
    """Family, generation and version of a cache file, and the kind of cache that wrote it."""

    family: str
    generation: int
    version: int
    kind: str

    def __str__(self) -> str:
        return f"{self.family}-g{self.generation:06d}-v{self.version}.{self.kind}"


class CacheDirectory:
    """The cache files of one family (`vectors`, `words`) of one wiki."""

    def __init__(self, path: Path, family: str) -> None:
        self.path = path
        self.family = family

    @property
    def owner(self) -> str:
        """The id of the wiki, which is the name of the directory."""
        return self.path.name

    def list_files(self, generation: int, kind: str) -> list[CacheFileName]:
        """List the files of a generation and kind, newest first. Empty if the directory cannot be read."""
        names = [name for name in self._list_all() if (name.generation, name.kind) == (generation, kind)]
        return sorted(names, key=lambda name: -name.version)

    def get_path(self, name: CacheFileName) -> Path:
        return self.path / str(name)

    def remove(self, name: CacheFileName) -> None:
        """Remove a file. Processes that mapped it can still read it."""
        with contextlib.suppress(OSError):
            move_away(self.get_path(name))

    def invalidate(self, file: MappedFile, error: Exception) -> None:
        """Mark a mapped file as invalid, so that nothing uses it again, and remove it."""
        header = file.header
        name = CacheFileName(self.family, header.generation, header.version, header.kind)
        _LOG.warning("removing the cache file %s: %s", name, error)
        file.invalid = True
        self.remove(name)

    def verify(self, file: MappedFile) -> None:
        """Verify all checksums of a mapped file. Invalidates a damaged file and raises CacheBroken."""
        try:
            file.verify_checksums()
        except CacheBroken as error:
            self.invalidate(file, error)
            raise

    def remove_older(self, newest: CacheFileName) -> None:
        """Remove files that this one replaces: older versions, older generations, and other kinds of the version."""
        for name in self._list_all():
            older = (name.generation, name.version) < (newest.generation, newest.version)
            same = (name.generation, name.version) == (newest.generation, newest.version) and name.kind != newest.kind
            if older or same:
                self.remove(name)

    def remove_abandoned(self) -> None:
        """Remove temporary files of killed writers. A live writer holds the lock of its file."""
        for path in self.path.glob(f"{self.family}-*{_TEMPORARY_SUFFIX}"):
            with contextlib.suppress(OSError), os.fdopen(open_regular(path), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()

    @contextlib.contextmanager
    def open_for_writing(self, name: CacheFileName) -> Iterator[BinaryIO]:
        """Open a temporary file that is renamed to this name on success and removed on failure."""
        # The directory is never created here: if it is gone, the wiki was removed and must not reappear.
        self.remove_abandoned()
        temporary, file = self._create_temporary(name)
        try:
            with file:
                yield file
                temporary.replace(self.get_path(name))
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        with contextlib.suppress(OSError):  # the rename is durable, best effort
            fsync_path(self.path)

    def _list_all(self) -> list[CacheFileName]:
        try:
            entries = [entry.name for entry in self.path.iterdir()]
        except OSError:
            return []
        matches = (_FILE_NAME_PATTERN.fullmatch(entry) for entry in entries)
        names = [CacheFileName(match[1], int(match[2]), int(match[3]), match[4]) for match in matches if match]
        return [name for name in names if name.family == self.family]

    def _create_temporary(self, name: CacheFileName) -> tuple[Path, BinaryIO]:
        while True:
            path = self.path / f"{name}.{secrets.token_hex(6)}{_TEMPORARY_SUFFIX}"
            file = open(path, "x+b", opener=_open_world_readable)  # noqa: SIM115 - the caller closes it
            with contextlib.suppress(OSError):
                fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have removed the file between its creation and our lock.
            if os.fstat(file.fileno()).st_nlink:
                return path, file
            file.close()


def _open_world_readable(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)
