"""A mirror that another node's work has outrun, or that was never made here, is brought when somebody needs it.

Nodes that share a wiki each have a mirror of its remote, and only the one that looks after the wiki fetches by
schedule. It tells the others which HEAD it found; whoever is then asked for a page it cannot have read fetches once.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Event, Lock, Thread

from wikiholt.errors import WikiholtError

_READER_TIMEOUT_S = 20.0
"""Seconds a reader waits for a fetch; the fetch itself goes on, for the next who asks."""
_MIN_FETCH_INTERVAL_S = 10.0
"""Seconds after a fetch in which there is none again for the same reason."""


def _ignore(_: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class SharedHead:
    """What nodes say to each other of a wiki's remote: the HEAD that was fetched last, by whichever of them."""

    read: Callable[[], str | None] = lambda: None
    write: Callable[[str], None] = _ignore


class MirrorRefresher:
    """Fetches in the background, one at a time; those who need it wait for it, for a while."""

    def __init__(self, fetch: Callable[[], object], timeout: float = _READER_TIMEOUT_S) -> None:
        self._fetch = fetch
        self._timeout = timeout
        self._lock = Lock()
        self._done: Event | None = None
        self._requested_head: str | None = None
        self._ended_at = -_MIN_FETCH_INTERVAL_S
        self._error: WikiholtError | None = None

    def refresh(self, head: str | None) -> WikiholtError | None:
        """Have fetched what is wanted, or know soon why that could not be; None when it came or is still coming."""
        with self._lock:
            lately = time.monotonic() - self._ended_at < _MIN_FETCH_INTERVAL_S and self._requested_head == head
            if self._done is None and not lately:
                self._requested_head, self._done = head, Event()
                Thread(target=self._run_fetch, args=(self._done,), name="bring", daemon=True).start()
            done = self._done
        if done is not None and not done.wait(self._timeout):
            return None
        return self._error

    def _run_fetch(self, done: Event) -> None:
        fault: WikiholtError | None = None
        try:
            self._fetch()
        except WikiholtError as error:
            fault = error
        finally:
            with self._lock:
                self._error, self._ended_at, self._done = fault, time.monotonic(), None
            done.set()
