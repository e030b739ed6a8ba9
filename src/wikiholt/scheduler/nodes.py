"""How a wiki stands with the node that looks after it, for the others to read: a note with the wiki's index."""

import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from time import monotonic

from wikiholt.domain.storage_protocols import IndexStore, NodeAssignments, NodeMessage
from wikiholt.errors import WikiholtError
from wikiholt.scheduler.wiki_records import SyncState, WikiEntry
from wikiholt.wikis.service import WikiService

_STATE_NOTE = "standing"
_HEALTHY_STATE = SyncState(
    waiting=False, missing=False, failures=0, error=None, next_try_seconds=0.0, synced_revision=None
)


def publish_state(store: IndexStore, entry: WikiEntry) -> None:
    """Leave a note if there is news; never raises, for that is not worth a sync."""
    known = (entry.missing, entry.failures, entry.error, entry.backup_error)
    if entry.published_note is not None and entry.published_note[0] == known:
        return
    with suppress(WikiholtError):
        before = (
            entry.published_note[1]
            if entry.published_note is not None
            else store.get_note(entry.wiki.id, _STATE_NOTE) or ""
        )
        text = _encode_state(entry)
        if text != before:
            store.set_note(entry.wiki.id, _STATE_NOTE, text)
        entry.published_note = (known, text)


def read_state(store: IndexStore, wiki_id: str) -> SyncState:
    """What the node that looks after the wiki says of it; where it says nothing, all is well."""
    try:
        note = json.loads(store.get_note(wiki_id, _STATE_NOTE) or "")
        next_try = (datetime.fromisoformat(note["next_try"]) - datetime.now(UTC)).total_seconds()
        return SyncState(
            waiting=False,
            missing=bool(note["missing"]),
            failures=int(note["failures"]),
            error=_decode_error(note["error"]),
            next_try_seconds=max(0.0, next_try),
            synced_revision=None,
            backup_error=_decode_error(note["backup_error"]),
        )
    except (WikiholtError, ValueError, TypeError, KeyError):
        return _HEALTHY_STATE


def _encode_state(entry: WikiEntry) -> str:
    if not (entry.missing or entry.failures or entry.backup_error):
        return ""
    next_try = datetime.now(UTC) + timedelta(seconds=max(0.0, entry.retry_at - monotonic()))
    return json.dumps(
        {
            "missing": entry.missing,
            "failures": entry.failures,
            "error": _encode_error(entry.error),
            "next_try": next_try.isoformat(),
            "backup_error": _encode_error(entry.backup_error),
        }
    )


def _encode_error(error: WikiholtError | None) -> list[str] | None:
    return [error.code, error.message, error.hint] if error else None


def _decode_error(encoded: list[str] | None) -> WikiholtError | None:
    """The error again, of the kind it was, for a surface shows each kind in its own way."""
    if encoded is None:
        return None
    code, message, hint = encoded
    kinds = [WikiholtError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        if kind.code == code:
            with suppress(TypeError):  # one that knows more than a note says
                return kind(message, hint=hint)
    return WikiholtError(message, hint=hint)


# A node that shares the work with no other: it looks after every wiki, and calls nobody.


class SingleNode:
    """Shifts where there is one node, or where all processes of a machine look after the same files."""

    def get_assigned(self) -> None:
        return None

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        pass

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        pass

    def close(self) -> None:
        pass


# What a node does for a wiki that another looks after: it calls that one, and reads what it left with the index.


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
