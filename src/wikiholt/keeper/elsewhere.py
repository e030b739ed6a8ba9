"""What a node does for a wiki that another looks after: it calls that one, and reads what it left with the index."""

import logging
import time
from collections.abc import Callable

from wikiholt.errors import WikiholtError
from wikiholt.ports import Call, Shifts
from wikiholt.service import Service

_LOG = logging.getLogger(__name__)

_FIRST_WAIT, _LONGEST_WAIT = 0.05, 0.5
"""Seconds between two looks at an index that another node brings to HEAD: ever longer ones."""
_REMEMBERED = 100_000


class Elsewhere:
    """Used from many threads. None of it raises: the wiki's own node looks at its HEAD whether it is called or not."""

    def __init__(self, service: Service, shifts: Shifts, rest: Callable[[float], None]) -> None:
        self._service = service
        self._shifts = shifts
        self._rest = rest
        self._asked: set[str] = set()

    def call(self, wiki_id: str, why: Call) -> None:
        try:
            self._shifts.wake(wiki_id, why)
        except WikiholtError as error:
            _LOG.warning("the node of a wiki could not be called (%s); it finds out by itself", error.message)

    def asked(self, wiki_id: str) -> None:
        """Say once that somebody uses it; more would be worth nothing."""
        if wiki_id in self._asked:
            return
        if len(self._asked) >= _REMEMBERED:
            self._asked = set()
        self._asked.add(wiki_id)
        self.call(wiki_id, Call.ASKED)

    def fresh(self, wiki_id: str, timeout: float) -> bool:
        """Have its node bring the index to the HEAD of now; False when it does not stand for that within the time."""
        until, wait = time.monotonic() + timeout, _FIRST_WAIT
        try:
            wiki = self._service.registry.by_id(wiki_id)
            handle, source = self._service.background(wiki.slug), self._service.source(wiki)
            if not wiki.source.startswith("/"):
                handle.fetch(lambda: time.monotonic() > until)  # else nobody here knows what HEAD is
            called = False
            while handle.settled_at() != source.seen():
                if not called:
                    self.call(wiki_id, Call.WAKE)
                    called = True
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._rest(min(wait, left))
                wait = min(_LONGEST_WAIT, wait * 1.5)
        except WikiholtError:
            return False
        return True
