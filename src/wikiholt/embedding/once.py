"""A part that is loaded when it is first needed, once a process."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from wikiholt.errors import ModelError

T = TypeVar("T")

_AGAIN = 60.0
"""Seconds until a model is tried again that could not be loaded."""


class Once(Generic[T]):
    """Loads at the first call and gives the same ever after. Safe to use from many threads."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._loaded: T | None = None
        self._failed: tuple[float, ModelError] | None = None
        self._lock = Lock()

    def __call__(self) -> T:
        """What was loaded; raises ModelError, for a minute the same one, so that no search waits for what is broken."""
        with self._lock:
            if self._loaded is not None:
                return self._loaded
            if self._failed is not None and time.monotonic() < self._failed[0]:
                raise self._failed[1]
            try:
                self._loaded = self._load()
            except ModelError as error:
                self._failed = (time.monotonic() + _AGAIN, error)
                raise
            return self._loaded
