"""Rate limits: a token bucket for every key and every address.

Keys are looked up first: `refuse_key` counts an unknown key, `check` counts a request before any work is done. Wrong
keys therefore never lock out a right one. Webhooks call `check_failures` first, and `record_failure` if their signature
is wrong. Each node counts for itself: a proxy sends the requests for a wiki to the same node (docs/scale.md).

A node counts in a table of fixed size in memory, which the workers of one service map from one file. A name belongs
to one row of eight places; if it is full, the place that was not used for the longest time is taken. The system
releases the lock of a process that dies.
"""

import fcntl
import math
import mmap
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from struct import Struct
from threading import Lock

from wikiholt.errors import TooManyRequests

MAX_FAILURES_PER_MINUTE = 30
_MIN_BURST_REQUESTS = 20
_KEY_ID = re.compile(r"wh_[a-z2-7]{12}(?=_)")
_PREFIX_LENGTH = 8
_PLACE = Struct("16sdd")
"""The digest of a name, the level of its bucket, and when that was its level."""
_PLACES_PER_ROW = 8
_ROW_BYTES = _PLACE.size * _PLACES_PER_ROW
_ROWS = 4096
_TABLE_BYTES = _ROW_BYTES * (1 + _ROWS)
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left: `limit` requests a minute (0: unlimited), `remaining` now, all again in `reset_seconds`."""

    limit: int
    remaining: int
    reset_seconds: int


@dataclass(frozen=True, slots=True)
class BucketSize:
    """Capacity and refill rate of a bucket, from the requests per minute."""

    per_minute: int

    @property
    def capacity(self) -> float:
        return float(max(_MIN_BURST_REQUESTS, self.per_minute // 4))

    @property
    def per_second(self) -> float:
        return self.per_minute / 60


class RateLimiter:
    """Counts requests by key and address. Safe to use from many threads."""

    def __init__(
        self,
        key_per_minute: int,
        address_per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        table: "BucketTable | None" = None,
    ) -> None:
        """Counts in `table`, or in a table of this process."""
        table = table or BucketTable(clock=clock)
        self._key_size, self._address_size = BucketSize(key_per_minute), BucketSize(address_per_minute)
        self._keys = table.open_buckets("key", self._key_size)
        self._addresses = table.open_buckets("address", self._address_size)
        self._failure_size = BucketSize(MAX_FAILURES_PER_MINUTE)
        self._failures, *self._wrong_keys = (
            table.open_buckets(kind, self._failure_size)
            for kind in ("failure", "wrong-key-address", "wrong-key-prefix")
        )

    def check(self, key_id: str | None, address: str) -> Allowance:
        """Count one request: of the key if there is one, else of the address. Raises TooManyRequests."""
        if key_id is not None:
            return _take_token(self._keys, self._key_size, key_id)
        return _take_token(self._addresses, self._address_size, get_network(address))

    def refuse_key(self, address: str, token: str) -> None:
        """Count an unknown key, by its address and by its prefix. Raises TooManyRequests if either had too many.

        Then nothing is counted, so that a flood of wrong keys costs only a memory lookup.
        """
        buckets = list(zip(self._wrong_keys, (get_network(address), get_key_prefix(token)), strict=True))
        remaining = min(wrong_keys.read_level(name) for wrong_keys, name in buckets)
        if remaining < 1:
            wait = _compute_wait(self._failure_size, remaining - 1)
            raise TooManyRequests(
                f"This key is unknown, and there were too many unknown keys; try again in {wait} s.",
                retry_after=float(wait),
                hint="Check the key. Valid keys are not affected.",
            )
        for wrong_keys, name in buckets:
            wrong_keys.consume(name)

    def check_failures(self, address: str) -> None:
        """Raises TooManyRequests after too many webhooks with a wrong signature from this address."""
        remaining = self._failures.read_level(get_network(address))
        if remaining < 1:
            raise _build_error(self._failure_size, remaining - 1)

    def record_failure(self, address: str) -> None:
        """Count a webhook with a wrong signature from this address."""
        self._failures.consume(get_network(address))


def _take_token(buckets: "TableBuckets", size: BucketSize, name: str) -> Allowance:
    if not size.per_minute:
        return Allowance(0, 0, 0)
    remaining = buckets.take(name)
    if remaining < 0:
        raise _build_error(size, remaining)
    return Allowance(size.per_minute, int(remaining), math.ceil((size.capacity - remaining) / size.per_second))


def _compute_wait(size: BucketSize, remaining: float) -> int:
    return max(1, math.ceil(-remaining / size.per_second))


def _build_error(size: BucketSize, remaining: float) -> TooManyRequests:
    wait = _compute_wait(size, remaining)
    return TooManyRequests(
        f"Too many requests; try again in {wait} s.", retry_after=float(wait), hint="Send fewer requests."
    )


def get_network(address: str) -> str:
    """The network that is counted as one address: for IPv6 the /64, which usually belongs to one person."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    return str(parsed.ipv4_mapped) if parsed.ipv4_mapped else f"{int(parsed) >> 64:x}"


def get_key_prefix(token: str) -> str:
    """The part of a key that is counted: the id of a Wikiholt key, or a digest of others, which may be secret."""
    match = _KEY_ID.match(token)
    if match is not None:
        return match[0]
    # Tokens of issuers (JWT) have a common prefix, so each is counted separately.
    prefix = token if token.count(".") == 2 else token[:_PREFIX_LENGTH]
    return blake2b(prefix.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


class BucketTable:
    """The table, in the memory of this process or in a file. Safe to use from many threads and processes."""

    def __init__(self, file: Path | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """With `file`, open the table that `create_table` made. `clock` must be the same in all processes."""
        self._descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC) if file else None
        if self._descriptor is None:  # a forked child gets a copy
            self._map = mmap.mmap(-1, _TABLE_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            self._map[:_SECRET_BYTES] = secrets.token_bytes(_SECRET_BYTES)
        else:
            self._map = mmap.mmap(self._descriptor, 0)
        self._secret = self._map[:_SECRET_BYTES]
        self._clock = clock
        # The lock of the file belongs to the process, not to the thread.
        self._thread_lock = Lock()

    def open_buckets(self, kind: str, size: BucketSize) -> "TableBuckets":
        return TableBuckets(self, kind, size)

    def digest_name(self, kind: str, name: str) -> bytes:
        """Digests depend on the table, so that no client can choose names of the same row."""
        return blake2b(f"{kind}\0{name}".encode("utf-8", "surrogatepass"), digest_size=16, key=self._secret).digest()

    def update_level(self, digest: bytes, size: BucketSize, change: Callable[[float], float]) -> float:
        """Replace the level of a bucket with what `change` returns for it, and return the level before."""
        start = _ROW_BYTES * (1 + int.from_bytes(digest[:4]) % _ROWS)
        with self._lock():
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
        if self._descriptor is not None:
            os.close(self._descriptor)

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with self._thread_lock:
            if self._descriptor is None:
                yield
                return
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


def create_table(file: Path) -> None:
    """Create an empty table: every bucket is full."""
    with file.open("xb") as opened:
        # Without holes: writing to one through a map ends the process if the disk is full (SIGBUS).
        opened.write(secrets.token_bytes(_SECRET_BYTES).ljust(_TABLE_BYTES, b"\0"))


class TableBuckets:
    """Buckets of one kind and size in a table, by name. New buckets are full."""

    def __init__(self, table: BucketTable, kind: str, size: BucketSize) -> None:
        self._table = table
        self._kind = kind
        self._size = size

    def take(self, name: str) -> float:
        """Take a token and return how many are left. If there is none, take nothing and return the deficit, < 0."""
        return self._update(name, lambda level: level - 1 if level >= 1 else level) - 1

    def consume(self, name: str) -> float:
        """Take a token if there is one, and return how many are left."""
        return max(0.0, self._update(name, lambda level: max(0.0, level - 1)) - 1)

    def read_level(self, name: str) -> float:
        """The number of tokens in a bucket."""
        return self._update(name, lambda level: level)

    def _update(self, name: str, change: Callable[[float], float]) -> float:
        return self._table.update_level(self._table.digest_name(self._kind, name), self._size, change)
