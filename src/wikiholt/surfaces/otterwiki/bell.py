"""A bell that hooks ring: what follows is done in a thread of its own, a moment later, so that no save waits."""

import logging
from collections.abc import Callable, Iterable
from threading import Condition, Thread

from wikiholt.surfaces.otterwiki.resolving import Place

_LOG = logging.getLogger(__name__)
_MOMENT = 0.05
"""Seconds in which the answer to who saved is on its way, and further rings count as one."""


class Bell:
    """Calls `answer` for each place that was rung for; may be rung from any thread, in microseconds."""

    def __init__(self, answer: Callable[[Place], None]) -> None:
        self._answer = answer
        self._rung: dict[Place, None] = {}
        self._changed = Condition()
        self._stopping = False
        self._thread: Thread | None = None

    def ring(self, places: Iterable[Place]) -> None:
        with self._changed:
            self._rung.update(dict.fromkeys(places))
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
        while rung := self._next():
            for place in rung:
                try:
                    self._answer(place)
                except Exception:  # noqa: BLE001 - the next one is to be answered all the same
                    _LOG.exception("a fault of Wikiholt's own")

    def _next(self) -> list[Place]:
        """What was rung for, a moment after it was; nothing once the bell stops."""
        with self._changed:
            self._changed.wait_for(lambda: self._rung or self._stopping)
            self._changed.wait_for(lambda: self._stopping, _MOMENT)
            rung, self._rung = self._rung, {}
            return [] if self._stopping else list(rung)
