"""One piece of background work at a time, its result fetched by whoever asks next."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Cancelled(Exception):
    """The work was told to stop."""


class BackgroundWorker(Generic[R]):
    """Runs one job in a thread of its own, or at once when not in the background. Not for two threads to start."""

    def __init__(self, name: str, *, background: bool) -> None:
        self._name = name
        self._background = background
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._result: R | None = None
        self._failure: Exception | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], R | None]) -> bool:
        """Begin a job unless one is running or its result waits to be taken; says whether it was begun."""
        untaken = self._result is not None or self._failure is not None
        if self.is_busy or untaken or self._stopping.is_set():
            return False
        if not self._background:
            self._run_job(job)
            return True
        self._thread = threading.Thread(target=self._run_job, args=(job,), name=self._name, daemon=True)
        self._thread.start()
        return True

    def take_result(self) -> tuple[R | None, Exception | None]:
        """What the last job gave or failed with, once; nothing while it runs."""
        if self.is_busy:
            return None, None
        taken = self._result, self._failure
        self._result = self._failure = None
        return taken

    def iter_until_stopped(self, items: Iterable[T]) -> Iterator[T]:
        """The items one by one, until told to stop."""
        for item in items:
            if self._stopping.is_set():
                raise Cancelled
            yield item

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the running job; says whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.is_busy

    def stop(self, timeout: float) -> bool:
        """Tell the running job to stop and wait for it; no other is begun."""
        self._stopping.set()
        return self.wait(timeout)

    def _run_job(self, job: Callable[[], R | None]) -> None:
        try:
            self._result = job()
        except Cancelled:
            pass
        except Exception as error:  # noqa: BLE001 - kept for whoever asks for the result
            self._failure = error
