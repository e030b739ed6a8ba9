"""Waiting for a condition, never for a time."""

import time
from collections.abc import Callable
from threading import Event


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until the condition holds, for so long at most."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        Event().wait(0.02)
