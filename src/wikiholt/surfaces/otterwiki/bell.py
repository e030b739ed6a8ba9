"""A bell that hooks ring: what follows is done in a thread of its own, a moment later, so that no save waits."""

import logging
from collections.abc import Callable, Iterable
from threading import Condition, Thread

from wikiholt.surfaces.otterwiki.resolving import WikiLocation

_log = logging.getLogger(__name__)
_DEBOUNCE_S = 0.05
"""Seconds in which the answer to who saved is on its way, and further rings count as one."""


class Debouncer:
    """Calls `answer` for each place that was rung for; may be rung from any thread, in microseconds."""

    def __init__(self, callback: Callable[[WikiLocation], None]) -> None:
        self._callback = callback
        self._pending: dict[WikiLocation, None] = {}
        self._changed = Condition()
        self._stopping = False
        self._thread: Thread | None = None

    def notify(self, locations: Iterable[WikiLocation]) -> None:
        with self._changed:
            self._pending.update(dict.fromkeys(locations))
            if self._thread is None and not self._stopping:
                self._thread = Thread(target=self._run, name="wikiholt-bell", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def stop(self, timeout: float) -> None:
        """Answer no more; what is being answered is waited for, so long."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while rung := self._take_pending():
            for place in rung:
                try:
                    self._callback(place)
                except Exception:  # noqa: BLE001 - the next one is to be answered all the same
                    _log.exception("a fault of Wikiholt's own")

    def _take_pending(self) -> list[WikiLocation]:
        """What was rung for, a moment after it was; nothing once the bell stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._stopping)
            self._changed.wait_for(lambda: self._stopping, _DEBOUNCE_S)
            rung, self._pending = self._pending, {}
            return [] if self._stopping else list(rung)
