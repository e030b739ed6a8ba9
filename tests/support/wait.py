"""Waits for a condition, never for a fixed time."""

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

TIMEOUT_S = 240.0
"""The longest wait for an expected event; long enough for slow and busy machines."""
_POLL_S, _MAX_POLL_S = 0.01, 0.25
_T = TypeVar("_T")


def wait_until(
    condition: Callable[[], _T],
    describe: str | Callable[[], str] = "the condition did not become true",
    *,
    seconds: float = TIMEOUT_S,
) -> _T:
    """Wait for the first true result and return it. Fails after the timeout with the text of `describe`.

    A condition that takes long is checked less often, because it slows down what it waits for.
    """
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if found := condition():
            return found
        assert time.monotonic() < end, f"timed out: {describe if isinstance(describe, str) else describe()}"
        Event().wait(min(_POLL_S + 3 * (time.monotonic() - began), _MAX_POLL_S))


def wait_up_to(condition: Callable[[], object], seconds: float) -> None:
    """Wait until the condition is true, or the time is over."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        Event().wait(0.002)
