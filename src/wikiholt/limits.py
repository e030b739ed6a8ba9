"""How often somebody may ask: a bucket of tokens for every key and every address, refilled as time goes by.

Ask in this order: `guard` before a key is looked at, `failed` if it is not known, `check` before the work is done.
"""

import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from threading import Lock

from wikiholt.errors import TooManyRequests

FAILURES_PER_MINUTE = 30
_LEAST_BURST = 20
_REMEMBERED = 20_000
"""Keys, and addresses, whose buckets are kept; the ones unused for longest are forgotten, and most are full by then."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left: `limit` requests a minute (0: no limit), `remaining` at once, all again in `reset_seconds`."""

    limit: int
    remaining: int
    reset_seconds: int


class Limits:
    """Requests of keys and addresses, counted in this process; safe to use from many threads."""

    def __init__(
        self, per_minute_key: int, per_minute_address: int, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._keys = _Buckets(per_minute_key, clock)
        self._addresses = _Buckets(per_minute_address, clock)
        self._failures = _Buckets(FAILURES_PER_MINUTE, clock)

    def check(self, key_id: str | None, address: str) -> Allowance:
        """Count one request: of the key where there is one, else of the address. Raises TooManyRequests."""
        if key_id is not None:
            return self._keys.take(key_id)
        return self._addresses.take(network_of(address))

    def guard(self, address: str) -> None:
        """Raises TooManyRequests while too many unknown keys have come from this address."""
        self._failures.look(network_of(address))

    def failed(self, address: str) -> None:
        """Count a key that is not known, sent from this address."""
        self._failures.spend(network_of(address))


def network_of(address: str) -> str:
    """What is counted as one address: of IPv6 the network of 64 bits, which one visitor has to themselves."""
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return "unknown"
    if not isinstance(found, IPv6Address):
        return str(found)
    return str(found.ipv4_mapped) if found.ipv4_mapped else f"{int(found) >> 64:x}"


class _Buckets:
    def __init__(self, per_minute: int, clock: Callable[[], float]) -> None:
        self._per_minute = per_minute
        self._per_second = per_minute / 60
        self._capacity = float(max(_LEAST_BURST, per_minute // 4))
        self._clock = clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = Lock()

    def take(self, name: str) -> Allowance:
        """One token; raises TooManyRequests when there is none."""
        if not self._per_minute:
            return Allowance(0, 0, 0)
        with self._lock:
            left = self._after_one(name)
            self._keep(name, left)
        return Allowance(self._per_minute, int(left), math.ceil((self._capacity - left) / self._per_second))

    def look(self, name: str) -> None:
        """Raises TooManyRequests when there is no token."""
        with self._lock:
            self._after_one(name)

    def spend(self, name: str) -> None:
        """One token, if there is one."""
        with self._lock:
            self._keep(name, max(0.0, self._level(name) - 1))

    def _after_one(self, name: str) -> float:
        left = self._level(name) - 1
        if left < 0:
            self._levels.move_to_end(name)  # whoever goes on asking is not forgotten
            raise self._refusal(left)
        return left

    def _level(self, name: str) -> float:
        level, then = self._levels.get(name, (self._capacity, 0.0))
        return min(self._capacity, level + (self._clock() - then) * self._per_second)

    def _keep(self, name: str, level: float) -> None:
        self._levels[name] = (level, self._clock())
        self._levels.move_to_end(name)
        if len(self._levels) > _REMEMBERED:
            self._levels.popitem(last=False)

    def _refusal(self, left: float) -> TooManyRequests:
        wait = max(1, math.ceil(-left / self._per_second))
        return TooManyRequests(
            f"Too many requests; ask again in {wait} s.", retry_after=float(wait), hint="Ask less often."
        )
