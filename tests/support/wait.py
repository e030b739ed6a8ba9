"""Waits for a condition, never for a fixed time."""

import time
from collections.abc import Callable
from threading import Event


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait until the condition is true; fail after the timeout."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true in time"
        Event().wait(0.01)


def wait_up_to(condition: Callable[[], object], seconds: float) -> None:
    """Wait until the condition is true, or the time is over."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        Event().wait(0.002)
