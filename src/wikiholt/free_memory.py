"""Returns freed memory to the system.

glibc keeps what a thread has freed for later use. After a model was loaded or a wiki was synced, that is often as much
as is in use.
"""

import ctypes
import logging
import math
import time
from collections.abc import Callable
from contextlib import suppress
from threading import Lock

_LOG = logging.getLogger(__name__)

_MAX_CPU_SHARE = 0.01
_ARENA_MAX_OPTION = -8
"""M_ARENA_MAX of glibc's mallopt."""


def use_one_arena() -> None:
    """Let all threads that start from now on allocate from one arena, where the C library can.

    Otherwise each thread keeps what it has freed for itself.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_ARENA_MAX_OPTION, 1)


def release_free_memory() -> None:
    """Return freed memory to the system, where the C library can. Takes milliseconds."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0))


class MemoryReleaser:
    """Releases memory so seldom that it takes at most a hundredth of one core. Safe to use from many threads."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release
        self._lock = Lock()
        self._released_at = -math.inf
        self._took_s = 0.0

    def release(self, interval_s: float = 0.0) -> None:
        """Release free memory, unless that was done less than `interval_s` seconds ago. Never raises."""
        with self._lock:
            began = time.monotonic()
            if began - self._released_at < max(interval_s, self._took_s / _MAX_CPU_SHARE):
                return
            try:
                self._release()
            except Exception:  # noqa: BLE001 - nothing depends on it
                _LOG.exception("memory could not be released")
            self._released_at = time.monotonic()
            self._took_s = self._released_at - began
