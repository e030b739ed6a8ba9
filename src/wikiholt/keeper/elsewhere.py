"""What a node does for a wiki that another looks after: it calls that one, and reads what it left with the index."""

import logging
import time
from collections.abc import Callable

from wikiholt.errors import WikiholtError
from wikiholt.ports import NodeMessage, NodeAssignments
from wikiholt.service import WikiService

_LOG = logging.getLogger(__name__)

_FIRST_POLL_S, _MAX_POLL_S = 0.05, 0.5
"""Seconds between two looks at an index that another node brings to HEAD: ever longer ones."""
_MAX_TOUCHED_WIKIS = 100_000


class OtherNodes:
    """Used from many threads. None of it raises: the wiki's own node looks at its HEAD whether it is called or not."""

    def __init__(self, service: WikiService, assignments: NodeAssignments, sleep: Callable[[float], None]) -> None:
        self._service = service
        self._assignments = assignments
        self._sleep = sleep
        self._touched: set[str] = set()

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        try:
            self._assignments.send(wiki_id, message)
        except WikiholtError as error:
            _LOG.warning("the node of a wiki could not be called (%s); it finds out by itself", error.message)

    def touch(self, wiki_id: str) -> None:
        """Say once that somebody uses it; more would be worth nothing."""
        if wiki_id in self._touched:
            return
        if len(self._touched) >= _MAX_TOUCHED_WIKIS:
            self._touched = set()
        self._touched.add(wiki_id)
        self.send(wiki_id, NodeMessage.TOUCH)

    def wait_until_fresh(self, wiki_id: str, timeout: float) -> bool:
        """Have its node bring the index to the HEAD of now; False when it does not stand for that within the time."""
        until, wait = time.monotonic() + timeout, _FIRST_POLL_S
        try:
            wiki = self._service.registry.get_by_id(wiki_id)
            handle, source = self._service.get_background_handle(wiki.slug), self._service.get_source(wiki)
            if not wiki.source.startswith("/"):
                handle.fetch(lambda: time.monotonic() > until)  # else nobody here knows what HEAD is
            called = False
            while handle.get_indexed_revision() != source.get_last_known_head():
                if not called:
                    self.send(wiki_id, NodeMessage.CHANGED)
                    called = True
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._sleep(min(wait, left))
                wait = min(_MAX_POLL_S, wait * 1.5)
        except WikiholtError:
            return False
        return True
