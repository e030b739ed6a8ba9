"""Cooperation of several nodes: the sync state of a wiki, stored beside its index, and messages to its node."""

import json
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from wikiholt.domain.storage_protocols import IndexStore, NodeAssignments, NodeMessage
from wikiholt.errors import WikiholtError, WikiNotFound
from wikiholt.scheduler.wiki_records import SyncState, WikiEntry
from wikiholt.wikis.service import WikiService

_STATE_NOTE = "standing"
_LOG = logging.getLogger(__name__)

_FIRST_POLL_S, _MAX_POLL_S = 0.05, 0.5
"""Seconds between two polls of an index that another node brings to HEAD, increasing."""
_MAX_TOUCHED_WIKIS = 100_000

_HEALTHY_STATE = SyncState(
    waiting=False, missing=False, failures=0, error=None, next_try_seconds=0.0, synced_revision=None
)


def publish_state(service: WikiService, entry: WikiEntry, *, is_watching: Callable[[str], bool]) -> None:
    """Store the state of the wiki if it has changed. Never raises; the state is best effort."""
    store, watched = service.components.store, is_watching(entry.wiki.id)
    known = (entry.missing, entry.failures, entry.error, entry.backup_error, watched)
    if entry.published_note is not None and entry.published_note[0] == known:
        return
    with suppress(WikiholtError):
        before = (
            entry.published_note[1]
            if entry.published_note is not None
            else store.get_note(entry.wiki.id, _STATE_NOTE) or ""
        )
        text = _encode_state(entry, watched=watched)
        if text != before:
            _store_state(service, entry.wiki.id, text)
        entry.published_note = (known, text)


def _store_state(service: WikiService, wiki_id: str, text: str) -> None:
    store = service.components.store
    creates = bool(text) and not store.exists(wiki_id)  # a wiki that could never be indexed
    store.set_note(wiki_id, _STATE_NOTE, text, create=creates)
    if creates:
        try:
            service.registry.get_by_id(wiki_id)
        except WikiNotFound:  # it was removed meanwhile
            store.delete(wiki_id)


def read_state(store: IndexStore, wiki_id: str) -> SyncState:
    """The state published by the node that syncs the wiki; healthy if it published none."""
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
            watched=bool(note.get("watched")),
        )
    except (WikiholtError, ValueError, TypeError, KeyError):
        return _HEALTHY_STATE


def _encode_state(entry: WikiEntry, *, watched: bool) -> str:
    if not (entry.missing or entry.failures or entry.backup_error or watched):
        return ""
    next_try = datetime.now(UTC) + timedelta(seconds=max(0.0, entry.retry_at - time.monotonic()))
    return json.dumps(
        {
            "missing": entry.missing,
            "failures": entry.failures,
            "error": _encode_error(entry.error),
            "next_try": next_try.isoformat(),
            "backup_error": _encode_error(entry.backup_error),
            "watched": watched,
        }
    )


def _encode_error(error: WikiholtError | None) -> list[str] | None:
    return [error.code, error.message, error.hint] if error else None


def _decode_error(encoded: list[str] | None) -> WikiholtError | None:
    """The error with its original class, because interfaces handle each class differently."""
    if encoded is None:
        return None
    code, message, hint = encoded
    classes = [WikiholtError]
    for error_class in classes:
        classes += error_class.__subclasses__()
        if error_class.code == code:
            with suppress(TypeError):  # a class with more arguments
                return error_class(message, hint=hint)
    return WikiholtError(message, hint=hint)


class SingleNode:
    """Assignments for a single node, or for processes that share the same files: all wikis, no messages."""

    def get_assigned(self) -> None:
        return None

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        pass

    def start(self, on_message: Callable[[str, NodeMessage], None]) -> None:
        pass

    def close(self) -> None:
        pass


class OtherNodes:
    """Requests for wikis of other nodes. Thread-safe. Never raises, because the wiki's own node polls HEAD anyway."""

    def __init__(self, service: WikiService, assignments: NodeAssignments, sleep: Callable[[float], None]) -> None:
        self._service = service
        self._assignments = assignments
        self._sleep = sleep
        self._touched: set[str] = set()

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        try:
            self._assignments.send(wiki_id, message)
        except WikiholtError as error:
            _LOG.warning("the node of a wiki could not be notified (%s); it will poll", error.message)

    def touch(self, wiki_id: str) -> None:
        """Notify the node once that the wiki is in use."""
        if wiki_id in self._touched:
            return
        if len(self._touched) >= _MAX_TOUCHED_WIKIS:
            self._touched = set()
        self._touched.add(wiki_id)
        self.send(wiki_id, NodeMessage.TOUCH)

    def wait_until_fresh(self, wiki_id: str, timeout: float) -> bool:
        """Ask the wiki's node to bring the index to the current HEAD. False on timeout or failure."""
        deadline, poll_s = time.monotonic() + timeout, _FIRST_POLL_S
        try:
            wiki = self._service.registry.get_by_id(wiki_id)
            handle, source = self._service.get_background_handle(wiki.slug), self._service.get_source(wiki)
            if not wiki.source.startswith("/") or wiki.is_directory:
                handle.fetch(lambda: time.monotonic() > deadline)  # otherwise HEAD is unknown here
            notified = False
            while handle.get_indexed_revision() != source.get_last_known_head():
                if not notified:
                    self.send(wiki_id, NodeMessage.CHANGED)
                    notified = True
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                self._sleep(min(poll_s, remaining))
                poll_s = min(_MAX_POLL_S, poll_s * 1.5)
        except WikiholtError:
            return False
        return True
