"""A few threads that take work only while they are idle: nothing waits in a queue."""

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Lock
from typing import TypeVar

T = TypeVar("T")


class IdleThreads:
    """Runs work in up to `count` threads. Safe to use from many threads; a forked child has threads of its own."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._idle = BoundedSemaphore(max(1, count))
        self._pid = os.getpid()

    def start(self, work: Callable[[], T]) -> Future[T] | None:
        """Start the work in an idle thread; None if there is none, or while the interpreter ends."""
        if self._count < 1:
            return None
        pool, idle = self._get_pool()
        if not idle.acquire(blocking=False):
            return None
        try:
            future = pool.submit(work)
        except RuntimeError:  # the pool was closed meanwhile
            idle.release()
            return None
        future.add_done_callback(lambda _: idle.release())
        return future

    def close(self) -> None:
        """Wait for the work and end the threads; later work starts them again."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None and self._pid == os.getpid():
            pool.shutdown(wait=True)

    def _get_pool(self) -> tuple[ThreadPoolExecutor, BoundedSemaphore]:
        with self._lock:
            if self._pid != os.getpid():
                # Threads do not survive a fork, and work that they did in the parent never ends here.
                self._pool, self._idle, self._pid = None, BoundedSemaphore(self._count), os.getpid()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._count, thread_name_prefix=self._name)
            return self._pool, self._idle
