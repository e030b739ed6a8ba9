"""A worker that runs one background job at a time and keeps its result until the owner takes it."""

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Cancelled(Exception):
    """The job was cancelled."""


class BackgroundWorker(Generic[Result]):
    """Runs one job in its own thread, or inline if `background` is false. Only one thread may start jobs."""

    def __init__(self, name: str, *, background: bool) -> None:
        self._name = name
        self._background = background
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._result: Result | None = None
        self._failure: Exception | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Callable[[], Result | None]) -> bool:
        """Start a job unless one is running or a result has not been taken. Returns whether it started."""
        has_result = self._result is not None or self._failure is not None
        if self.is_busy or has_result or self._stopping.is_set():
            return False
        if not self._background:
            self._run_job(job)
            return True
        self._thread = threading.Thread(target=self._run_job, args=(job,), name=self._name, daemon=True)
        self._thread.start()
        return True

    def take_result(self) -> tuple[Result | None, Exception | None]:
        """Return and clear the result or the failure of the last job. Both are None while a job runs."""
        if self.is_busy:
            return None, None
        outcome = self._result, self._failure
        self._result = self._failure = None
        return outcome

    def iter_until_stopped(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items. Raises Cancelled once the worker is stopped."""
        for item in items:
            if self._stopping.is_set():
                raise Cancelled
            yield item

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the running job. Returns whether it has ended."""
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.is_busy

    def stop(self, timeout: float) -> bool:
        """Cancel the running job, wait for it, and refuse new jobs. Returns whether it has ended."""
        self._stopping.set()
        return self.wait(timeout)

    def _run_job(self, job: Callable[[], Result | None]) -> None:
        try:
            self._result = job()
        except Cancelled:
            pass
        except Exception as error:  # noqa: BLE001 - kept for `take_result`
            self._failure = error
