"""How often somebody may ask: a bucket of tokens for every key and every address, refilled as time goes by.

Keys are looked up first: `refuse_key` counts one that is not known, `check` counts a request before the work is done.
So wrong keys never lock out a right one, whoever sends them. Webhooks take `guard` before and `failed` after they prove
wrong.
Where many nodes serve the same wikis they share the buckets (`shared`), and what cannot be counted is refused.
"""

import math
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from ipaddress import IPv6Address, ip_address
from threading import Lock
from typing import Protocol

from wikiholt.errors import TooManyRequests

MAX_FAILURES_PER_MINUTE = 30
_MIN_BURST_REQUESTS = 20
_KEY_ID = re.compile(r"wh_[a-z2-7]{12}(?=_)")
_PREFIX_LENGTH = 8
_MAX_BUCKETS = 20_000
"""Keys, and addresses, whose buckets are kept; the ones unused for longest are forgotten, and most are full by then."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left: `limit` requests a minute (0: no limit), `remaining` at once, all again in `reset_seconds`."""

    limit: int
    remaining: int
    reset_seconds: int


@dataclass(frozen=True, slots=True)
class BucketSize:
    """How much a bucket holds and how fast it fills, for so many requests a minute."""

    per_minute: int

    @property
    def capacity(self) -> float:
        return float(max(_MIN_BURST_REQUESTS, self.per_minute // 4))

    @property
    def per_second(self) -> float:
        return self.per_minute / 60


class TokenBuckets(Protocol):
    """Buckets of one size, by name; each is full when it is first asked for. Safe to use from many threads."""

    def take(self, name: str) -> float:
        """Take a token: how many are left. Where there is none, none is taken, and it is how many are wanting, < 0."""
        ...

    def consume(self, name: str) -> float:
        """Take a token if there is one; how many are left."""
        ...


def _no_shared_buckets(_: str, __: BucketSize) -> TokenBuckets | None:
    return None


class RateLimiter:
    """Requests of keys and addresses; safe to use from many threads.

    They are counted in this process, or in what `shared` gives for a kind of bucket and its size.
    """

    def __init__(
        self,
        key_per_minute: int,
        address_per_minute: int,
        *,
        clock: Callable[[], float] = time.monotonic,
        shared_buckets: Callable[[str, BucketSize], TokenBuckets | None] = _no_shared_buckets,
    ) -> None:
        self._key_size, self._address_size = BucketSize(key_per_minute), BucketSize(address_per_minute)
        self._keys = shared_buckets("key", self._key_size) or InMemoryBuckets(self._key_size, clock)
        self._addresses = shared_buckets("address", self._address_size) or InMemoryBuckets(self._address_size, clock)
        self._failure_size = BucketSize(MAX_FAILURES_PER_MINUTE)
        self._failures = InMemoryBuckets(self._failure_size, clock)
        self._shared_failures = shared_buckets("failure", self._failure_size)
        self._wrong_keys = [
            _WrongKeys(
                InMemoryBuckets(self._failure_size, clock), shared_buckets(f"wrong-key-{by}", self._failure_size)
            )
            for by in ("address", "prefix")
        ]

    def check(self, key_id: str | None, address: str) -> Allowance:
        """Count one request: of the key where there is one, else of the address. Raises TooManyRequests."""
        if key_id is not None:
            return _take_token(self._keys, self._key_size, key_id)
        return _take_token(self._addresses, self._address_size, get_network(address))

    def refuse_key(self, address: str, token: str) -> None:
        """Count a key that is not known, by its address and by its prefix. Raises TooManyRequests where either has
        had too many; then nothing is counted, so that a flood of wrong keys costs no more than a look into memory.
        """
        counted = list(zip(self._wrong_keys, (get_network(address), get_key_prefix(token)), strict=True))
        left = min(wrong.own.read_level(name) for wrong, name in counted)
        if left < 1:
            wait = _compute_wait(self._failure_size, left - 1)
            raise TooManyRequests(
                f"This key is not known here, and too many such keys have come; try again in {wait} s.",
                retry_after=float(wait),
                hint="Check the key. One that is known is not affected.",
            )
        for wrong, name in counted:
            wrong.count(name)

    def check_failures(self, address: str) -> None:
        """Raises TooManyRequests while too many webhooks with a wrong signature have come from this address."""
        left = self._failures.read_level(get_network(address))
        if left < 1:
            raise _build_error(self._failure_size, left - 1)

    def record_failure(self, address: str) -> None:
        """Count a webhook with a wrong signature, sent from this address."""
        name = get_network(address)
        if self._shared_failures is None:
            self._failures.consume(name)
        else:
            # Looking costs nothing, for each node remembers what was left of all nodes' when it last counted one.
            self._failures.set_level(name, self._shared_failures.consume(name))


def _take_token(buckets: TokenBuckets, size: BucketSize, name: str) -> Allowance:
    if not size.per_minute:
        return Allowance(0, 0, 0)
    left = buckets.take(name)
    if left < 0:
        raise _build_error(size, left)
    return Allowance(size.per_minute, int(left), math.ceil((size.capacity - left) / size.per_second))


def _compute_wait(size: BucketSize, left: float) -> int:
    return max(1, math.ceil(-left / size.per_second))


def _build_error(size: BucketSize, left: float) -> TooManyRequests:
    wait = _compute_wait(size, left)
    return TooManyRequests(
        f"Too many requests; ask again in {wait} s.", retry_after=float(wait), hint="Ask less often."
    )


def get_network(address: str) -> str:
    """What is counted as one address: of IPv6 the network of 64 bits, which one visitor has to themselves."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped) if found.ipv4_mapped else f"{int(found) >> 64:x}"


def get_key_prefix(token: str) -> str:
    """What of a key is counted: the id of one of ours; of others a digest, for they may be secret from the start."""
    form = _KEY_ID.match(token)
    if form is not None:
        return form[0]
    # Tokens of issuers (JWT) all begin alike: each is counted by itself.
    counted = token if token.count(".") == 2 else token[:_PREFIX_LENGTH]
    return blake2b(counted.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class _WrongKeys:
    """Wrong keys of one process, and, where nodes share that, of all."""

    own: "InMemoryBuckets"
    shared: TokenBuckets | None

    def count(self, name: str) -> None:
        if self.shared is None:
            self.own.consume(name)
        else:
            # Each node remembers what was left of all nodes' when it last counted one, so that looking costs nothing.
            self.own.set_level(name, self.shared.consume(name))


class InMemoryBuckets:
    """Buckets in the memory of this process."""

    def __init__(self, size: BucketSize, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, name: str) -> float:
        with self._lock:
            left = self._compute_level(name) - 1
            if left >= 0:
                self._store_level(name, left)
            elif name in self._levels:
                self._levels.move_to_end(name)  # whoever goes on asking is not forgotten
            return left

    def consume(self, name: str) -> float:
        with self._lock:
            left = max(0.0, self._compute_level(name) - 1)
            self._store_level(name, left)
            return left

    def read_level(self, name: str) -> float:
        """How many tokens there are."""
        with self._lock:
            if name in self._levels:
                self._levels.move_to_end(name)
            return self._compute_level(name)

    def set_level(self, name: str, level: float) -> None:
        """Have so many tokens in a bucket."""
        with self._lock:
            self._store_level(name, level)

    def _compute_level(self, name: str) -> float:
        level, then = self._levels.get(name, (self._size.capacity, 0.0))
        return min(self._size.capacity, level + (self._clock() - then) * self._size.per_second)

    def _store_level(self, name: str, level: float) -> None:
        self._levels[name] = (level, self._clock())
        self._levels.move_to_end(name)
        if len(self._levels) > _MAX_BUCKETS:
            self._levels.popitem(last=False)
