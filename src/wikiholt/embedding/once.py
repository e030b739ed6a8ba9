"""A part that is loaded when it is first needed, once a process."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from wikiholt.errors import ModelError

T = TypeVar("T")


class Lazy(Generic[T]):
    """Loads at the first call and gives the same ever after. Safe to use from many threads: they wait for one."""

    def __init__(self, load: Callable[[], T], retry_delay_s: float = 0.0) -> None:
        """What could not be loaded is tried again after so many seconds; until then the same error is raised."""
        self._load = load
        self._retry_delay_s = retry_delay_s
        self._loaded: T | None = None
        self._failure: tuple[float, ModelError] | None = None
        self._lock = Lock()

    def __call__(self) -> T:
        """What was loaded; raises ModelError."""
        with self._lock:
            if self._loaded is not None:
                return self._loaded
            if self._failure is not None and time.monotonic() < self._failure[0]:
                raise self._failure[1]
            try:
                self._loaded = self._load()
            except ModelError as error:
                self._failure = (time.monotonic() + self._retry_delay_s, error)
                raise
            return self._loaded
