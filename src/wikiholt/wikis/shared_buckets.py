"""Token buckets that the processes of one service share: a table of fixed size in a memory-mapped file.

A name belongs to one row of eight places. A process locks the row while it changes a place; the system releases the
lock of a process that dies. If a row is full, the place that was not used for the longest time is taken.
"""

import fcntl
import mmap
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from threading import Lock

from wikiholt.wikis.rate_limit import BucketSize

_PLACE = Struct("16sdd")
"""The digest of a name, the level of its bucket, and when that was its level."""
_PLACES_PER_ROW = 8
_ROW_BYTES = _PLACE.size * _PLACES_PER_ROW
_ROWS = 4096
_SECRET_BYTES = 32


class BucketTable:
    """The table in its file. Safe to use from many threads and processes; one object per process and file."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        """Open the table that `create_table` made. `clock` must be the same in all processes."""
        self._descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._map = mmap.mmap(self._descriptor, 0)
        self._secret = self._map[:_SECRET_BYTES]
        self._clock = clock
        # The lock of the file belongs to the process, not to the thread.
        self._lock = Lock()

    def open_buckets(self, kind: str, size: BucketSize) -> "SharedBuckets":
        return SharedBuckets(self, kind, size)

    def digest_name(self, kind: str, name: str) -> bytes:
        """Digests depend on the table, so that no client can choose names of the same row."""
        return blake2b(f"{kind}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16, key=self._secret).digest()

    def update_level(self, digest: bytes, size: BucketSize, change: Callable[[float], float]) -> float:
        """Replace the level of a bucket with what `change` returns for it, and return the level before."""
        start = _ROW_BYTES * (1 + int.from_bytes(digest[:4]) % _ROWS)
        with self._lock_row(start):
            now = self._clock()
            places = [_PLACE.unpack_from(self._map, start + _PLACE.size * n) for n in range(_PLACES_PER_ROW)]
            position = next((n for n, place in enumerate(places) if place[0] == digest), None)
            if position is None:
                position = min(range(_PLACES_PER_ROW), key=lambda n: places[n][2])
                level = size.capacity
            else:
                _, stored, updated_at = places[position]
                level = stored + max(0.0, now - updated_at) * size.per_second
                level = min(size.capacity, max(0.0, level))
            at = start + _PLACE.size * position
            self._map[at : at + _PLACE.size] = _PLACE.pack(digest, change(level), now)
            return level

    def close(self) -> None:
        self._map.close()
        os.close(self._descriptor)

    @contextmanager
    def _lock_row(self, start: int) -> Iterator[None]:
        with self._lock:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX, _ROW_BYTES, start)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN, _ROW_BYTES, start)


def create_table(file: Path) -> None:
    """Create an empty table: every bucket is full."""
    with file.open("xb") as opened:
        opened.write(secrets.token_bytes(_SECRET_BYTES))
        opened.truncate(_ROW_BYTES * (1 + _ROWS))


class SharedBuckets:
    """`TokenBuckets` of one kind and size in a table."""

    def __init__(self, table: BucketTable, kind: str, size: BucketSize) -> None:
        self._table = table
        self._kind = kind
        self._size = size

    def take(self, name: str) -> float:
        return self._update(name, lambda level: level - 1 if level >= 1 else level) - 1

    def consume(self, name: str) -> float:
        return max(0.0, self._update(name, lambda level: max(0.0, level - 1)) - 1)

    def _update(self, name: str, change: Callable[[float], float]) -> float:
        return self._table.update_level(self._table.digest_name(self._kind, name), self._size, change)
