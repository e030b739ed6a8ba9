"""Cooperation of several nodes, and of the processes of one service: the state of a wiki for others, and messages."""

import json
import logging
import os
import time
from collections.abc import Callable, Set
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from wikiholt.domain.storage_protocols import IndexStore, NodeAssignments, NodeMessage
from wikiholt.errors import Busy, WikiholtError, WikiNotFound
from wikiholt.sync.wiki_records import SchedulerCounters, SyncState, WikiEntry
from wikiholt.wikis.service import WikiService

if TYPE_CHECKING:
    from wikiholt.sync.scheduler import Scheduler

_STATE_NOTE = "sync-state"
_LOG = logging.getLogger(__name__)

_FIRST_POLL_S, _MAX_POLL_S = 0.05, 0.5
"""Seconds between two polls of an index that another node brings to HEAD, increasing."""
_MAX_TOUCHED_WIKIS = 100_000


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
        return SyncState(
            missing=bool(note["missing"]),
            failures=int(note["failures"]),
            error=_decode_error(note["error"]),
            backup_error=_decode_error(note["backup_error"]),
            watched=bool(note.get("watched")),
        )
    except (WikiholtError, ValueError, TypeError, KeyError):
        return SyncState()


def _encode_state(entry: WikiEntry, *, watched: bool) -> str:
    if not (entry.missing or entry.error or entry.backup_error or watched):
        return ""
    return json.dumps(
        {
            "missing": entry.missing,
            "failures": entry.failures,
            "error": _encode_error(entry.error),
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

    def get_assigned(self) -> Set[str] | None:
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

    def wait_until_fresh(self, wiki_id: str, timeout_s: float) -> bool:
        """Ask the wiki's node to bring the index to the current HEAD. False on timeout or failure."""
        deadline, poll_s = time.monotonic() + timeout_s, _FIRST_POLL_S
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


# The link between the worker processes of a service and its scheduler process: a pipe and a file. Workers write one
# line per message into the pipe. The process that started them keeps both ends open, so messages wait while the
# scheduler is replaced. The scheduler writes its counters into the file, which every worker reads.


class SchedulerLink(SingleNode):
    """`NodeAssignments` of a worker: no wiki is assigned to it, and its messages go to the scheduler process."""

    def __init__(self, pipe: int, counters_file: Path) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self._counters_file = counters_file

    def get_assigned(self) -> Set[str]:
        return frozenset()

    def send(self, wiki_id: str, message: NodeMessage) -> None:
        """Send a message. Raises Busy if the scheduler has not read for a long time."""
        try:
            os.write(self._pipe, f"{message.value} {wiki_id}\n".encode())
        except OSError as error:
            raise Busy("the scheduler process does not answer", hint="see the log of the service") from error

    def get_counters(self) -> SchedulerCounters:
        """The last counters of the scheduler process; zero before there are any."""
        try:
            return SchedulerCounters(**json.loads(self._counters_file.read_text()))
        except (OSError, ValueError, TypeError):
            return SchedulerCounters()


def handle_worker_requests(pipe: int, scheduler: "Scheduler") -> None:
    """Handle the messages of the workers until no process writes any more.

    The first one after a crash of the scheduler may be incomplete, and is ignored.
    """
    with open(pipe, "rb") as lines:
        for line in lines:
            word, _, wiki_id = line.decode("utf-8", "replace").strip().partition(" ")
            with suppress(ValueError):
                scheduler.handle_request(wiki_id, NodeMessage(word))


def publish_counters(file: Path, counters: SchedulerCounters) -> None:
    temporary = file.with_suffix(".new")
    with suppress(OSError):  # they are written again
        temporary.write_text(json.dumps(asdict(counters)))
        temporary.replace(file)
