"""The append-only list of what no restored registry may bring back: revoked keys and removed wikis.

It is kept outside the database, in a file of the data directory and in a copy beside the backups of the registry. Both
are flushed to disk before a revocation is acknowledged. Each line has a checksum; a file that is missing or damaged is
replaced by the union with the other one.
"""

import fcntl
import logging
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b, sha256
from pathlib import Path
from typing import NamedTuple

from wikiholt.errors import IndexCorrupt, StorageError
from wikiholt.regular_files import fsync_path, is_irregular, move_away, open_regular, write_atomically
from wikiholt.wikis.registry_schema import RECOVERY_HINT

_LOG = logging.getLogger(__name__)

REVOKED_FILE = "revoked"
_MAX_BYTES = 1 << 30


class RevokedEntry(NamedTuple):
    """`key` with the digest of its token, `wiki` with a digest of its id, or a fact about the registry."""

    kind: str
    value: str

    @classmethod
    def of_key(cls, digest: str) -> "RevokedEntry":
        return cls("key", digest)

    @classmethod
    def of_wiki(cls, wiki_id: str) -> "RevokedEntry":
        return cls("wiki", sha256(wiki_id.encode()).hexdigest()[:32])


FIRST_KEY = RevokedEntry("fact", "first-key")
"""A key was created: from then on nothing is open without one."""
STARTED_EMPTY = RevokedEntry("fact", "started-empty")
"""The registry was started empty after one was lost: it is unknown which of its wikis were private."""


class RevokedList:
    """The list of one data directory. Safe to use from many threads and processes."""

    def __init__(self, file: Path, copy: Path) -> None:
        """`copy` is beside the backups of the registry."""
        self.files = (file, copy)
        self._known: tuple[tuple[int, ...] | None, frozenset[RevokedEntry] | None] = None, None
        """The stamp of the first file before it was read, and the entries; in one value, as several threads load."""

    def load(self) -> frozenset[RevokedEntry] | None:
        """All entries; None if nothing was ever listed. Raises IndexCorrupt if no intact file is left."""
        stamp = self._read_stamp()
        known_stamp, entries = self._known
        if entries is None or stamp is None or stamp != known_stamp:
            entries = self._read_files()
            self._known = stamp, entries
        return entries

    def has_wiki(self, wiki_id: str) -> bool:
        """Whether this wiki was removed, as far as this machine knows. Cheap enough to be asked for every batch."""
        return RevokedEntry.of_wiki(wiki_id) in (self.load() or ())

    def append(self, entries: Collection[RevokedEntry]) -> None:
        """Add entries to both files, durably. Raises StorageError, and IndexCorrupt like `load`."""
        with self._lock():
            found = [_read_lines(file) for file in self.files]
            self._require_intact(found)
            union = _unite(found) | frozenset(entries)
            for file, known in zip(self.files, found, strict=True):
                if known is not None:
                    _append_lines(file, union - known)
                elif union:
                    _write_lines(file, union)
                    if found != [None, None]:
                        _LOG.warning("the list of revoked keys %s was missing or damaged; it was written again", file)

    def replace(self, entries: Collection[RevokedEntry]) -> None:
        """Write both files from scratch, for a list that was lost. Raises StorageError."""
        with self._lock():
            for file in self.files:
                _write_lines(file, entries)

    def _read_stamp(self) -> tuple[int, ...] | None:
        try:
            status = self.files[0].stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

    def _read_files(self) -> frozenset[RevokedEntry] | None:
        found = [_read_lines(file) for file in self.files]
        if found[0] != found[1] or (found[0] is None and any(map(os.path.lexists, self.files))):
            with suppress(StorageError):  # a directory that cannot be written
                self.append(())  # waits for a process that is writing, then repairs
            found = [_read_lines(file) for file in self.files]
            self._require_intact(found)
        return None if found == [None, None] else _unite(found)

    def _require_intact(self, found: Sequence[frozenset[RevokedEntry] | None]) -> None:
        if all(known is None for known in found) and any(map(os.path.lexists, self.files)):
            raise make_lost_list_error(self.files[0], "damaged")

    @contextmanager
    def _lock(self) -> Iterator[None]:
        directory = self.files[0].parent
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StorageError(
                f"The list of revoked keys cannot be written: {error.strerror or error}.",
                hint="Check free space, and that the user who runs wikiholt may write to the data and backup"
                " directories. Then try again.",
            ) from error


def _unite(found: Sequence[frozenset[RevokedEntry] | None]) -> frozenset[RevokedEntry]:
    return frozenset[RevokedEntry]().union(*(known for known in found if known is not None))


def make_lost_list_error(file: Path, state: str) -> IndexCorrupt:
    """The error if it is unknown which keys were revoked."""
    return IndexCorrupt(f"The list of revoked keys {file} is {state}.", hint=RECOVERY_HINT)


def _read_lines(file: Path) -> frozenset[RevokedEntry] | None:
    """The entries; None if the file is missing or damaged. A last line without its end was never acknowledged."""
    try:
        with os.fdopen(open_regular(file), "rb") as stream:
            *lines, _ = stream.read(_MAX_BYTES).decode().split("\n")
    except (OSError, UnicodeDecodeError):
        return None
    entries = [line.split(" ") for line in lines]
    if not all(len(entry) == 3 and _compute_check(*entry[:2]) == entry[2] for entry in entries):
        return None
    return frozenset(RevokedEntry(kind, value) for kind, value, _ in entries)


def _append_lines(file: Path, entries: Collection[RevokedEntry]) -> None:
    if not entries:
        return
    descriptor = open_regular(file, os.O_RDWR)
    try:
        end = os.pread(descriptor, os.fstat(descriptor).st_size, 0).rfind(b"\n") + 1
        os.ftruncate(descriptor, end)
        os.pwrite(descriptor, _format_lines(entries), end)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_lines(file: Path, entries: Collection[RevokedEntry]) -> None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if is_irregular(file):
        move_away(file)
    write_atomically(file, file.with_name(f".{file.name}"), _format_lines(entries), 0o600)
    fsync_path(file.parent)


def _format_lines(entries: Collection[RevokedEntry]) -> bytes:
    return "".join(f"{kind} {value} {_compute_check(kind, value)}\n" for kind, value in sorted(entries)).encode()


def _compute_check(kind: str, value: str) -> str:
    return blake2b(f"{kind} {value}".encode(), digest_size=4).hexdigest()
