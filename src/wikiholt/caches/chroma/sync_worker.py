"""One background worker for all collections of a process: keeps Chroma running, brings one collection after another.

One at a time, so that a collection which kills Chroma is known by that. After a failure it waits, longer each time,
up to a minute; while it waits, searches answer exactly and nobody waits for anything.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

from wikiholt.caches.background_worker import Cancelled
from wikiholt.caches.chroma.client import (
    ChromaError,
    ChromaMetrics,
    ChromaUnavailable,
    CollectionBusy,
    ForeignCollection,
)
from wikiholt.caches.chroma.hosts import ChromaHost
from wikiholt.caches.chroma.rest_api import ChromaApi
from wikiholt.errors import MissingDependency, WikiholtError

_LOG = logging.getLogger(__name__)

MAX_RETRY_DELAY_S = 60.0
_RETRY_DELAY_S = 0.5
_FAILURE_RESET_S = 120.0
"""Seconds without a failure after which earlier ones are forgotten."""
_RESET_INTERVAL_S = 600.0
_REMOVE_TIMEOUT_S = 5.0
_MAX_ERROR_RETRY_DELAY_S = 600.0
"""Seconds after which a collection is tried again that was refused over and over."""


class SyncTarget(Protocol):
    """A cache whose collection is looked after."""

    def sync_collection(self, api: ChromaApi, instance_id: str, should_stop: Callable[[], bool]) -> None: ...

    def mark_unavailable(self) -> None: ...

    def is_behind(self) -> bool: ...


class CollectionSyncWorker:
    """Looks after the collections of one process."""

    def __init__(
        self,
        host: ChromaHost,
        api: ChromaApi,
        metrics: ChromaMetrics,
        *,
        get_wiki_ids: Callable[[], Iterable[str]],
        on_connected: Callable[[ChromaApi], None] = lambda _: None,
        heartbeat: float = 15.0,
    ) -> None:
        """`begin` is called when Chroma is reached again; `heartbeat` is how long it may be silent."""
        self.host = host
        self.api = api
        self.metrics = metrics
        self.get_wiki_ids = get_wiki_ids
        self._on_connected = on_connected
        self._heartbeat = heartbeat
        self.unavailable_reason = ""
        """Why Chroma is not to be had, in words for the operator; empty while it is."""
        self._failures = 0
        self._failed_at = 0.0
        self._error_count = 0
        self._reset_at = -_RESET_INTERVAL_S
        self._connected_to = ""
        self._due_at: dict[SyncTarget, float] = {}
        self._reported: WeakSet[SyncTarget] = WeakSet()
        self._errors_by_target: WeakKeyDictionary[SyncTarget, int] = WeakKeyDictionary()
        self._init_process()

    def _init_process(self) -> None:
        """Locks and threads belong to one process; a forked child gets its own."""
        self._process_id = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._current: SyncTarget | None = None
        self._busy: SyncTarget | None = None
        self._stopping = False

    @property
    def is_up(self) -> bool:
        return not self.unavailable_reason and bool(self._connected_to)

    def enqueue(self, target: SyncTarget) -> None:
        """Have this collection brought soon; returns at once."""
        if self._process_id != os.getpid():
            self._due_at = {}
            self._init_process()
        with self._changed:
            if self._stopping:
                return
            self._due_at.setdefault(target, 0.0)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="wikiholt-chroma", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def wait(self, target: SyncTarget, timeout: float | None) -> bool:
        """Wait until it has been brought or has failed; whether that was in time. Nobody waits during a pause."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_pending(target), timeout)

    def remove(self, target: SyncTarget) -> None:
        """Look after it no more; what is being done for it is left at the next step, which is awaited a while."""
        with self._changed:
            self._due_at.pop(target, None)
            if self._current is target:
                self._current = None
            self._changed.wait_for(lambda: self._busy is not target, _REMOVE_TIMEOUT_S)

    def close(self) -> None:
        with self._changed:
            self._stopping, self._due_at, thread = True, {}, self._thread
            self._changed.notify_all()
        if thread is not None and self._process_id == os.getpid():
            thread.join(10.0)

    def _is_pending(self, target: SyncTarget) -> bool:
        waiting = (
            target in self._due_at
            and self._due_at[target] <= time.monotonic() + 2 * _RETRY_DELAY_S
            and not self._get_retry_delay()
        )
        return not self._stopping and (self._current is target or waiting)

    # ── the thread ───────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while (charge := self._take_next()) is not None:
            again: float | None = MAX_RETRY_DELAY_S
            try:
                again = self._sync_target(charge)
            except Exception:  # noqa: BLE001 - a fault met with one collection must not end the thread that serves all
                if self._current is charge:  # otherwise it was closed in the middle
                    _LOG.exception("a fault of Wikiholt's own")
            with self._changed:
                self._busy = None
                if self._current is charge:
                    self._current = None
                    if again is not None:
                        self._due_at[charge] = time.monotonic() + again
                self._changed.notify_all()

    def _take_next(self) -> SyncTarget | None:
        """The next collection that is due; None when it is time to end."""
        with self._changed:
            while not self._stopping:
                now, pause = time.monotonic(), self._get_retry_delay()
                due = [(at, charge) for charge, at in self._due_at.items() if at <= now]
                if due and not pause:
                    _, self._current = min(due, key=lambda each: each[0])
                    del self._due_at[self._current]
                    self._busy = self._current
                    return self._current
                soonest = min((at - now for at in self._due_at.values()), default=None)
                self._changed.wait(pause or soonest)
            return None

    def _get_retry_delay(self) -> float:
        """Seconds until Chroma is tried again."""
        if not self._failures:
            return 0.0
        return max(
            0.0,
            self._failed_at + min(MAX_RETRY_DELAY_S, _RETRY_DELAY_S * 2.0 ** (self._failures - 1)) - time.monotonic(),
        )

    def _sync_target(self, target: SyncTarget) -> float | None:
        """Bring one collection; returns in how many seconds to do so again, if at all."""
        try:
            incarnation = self._connect()
            target.sync_collection(self.api, incarnation, lambda: self._stopping or self._current is not target)
            self._clear_failures()
            self._errors_by_target.pop(target, None)
            return 0.0 if target.is_behind() else None
        except Cancelled:
            return None
        except CollectionBusy:
            return _RETRY_DELAY_S
        except (ChromaUnavailable, MissingDependency) as error:
            target.mark_unavailable()
            self._handle_unavailable(error)
            return 0.0
        except ChromaError as refusal:
            target.mark_unavailable()
            self._errors_by_target[target] = self._errors_by_target.get(target, 0) + 1
            return self._handle_error(refusal) or min(
                _MAX_ERROR_RETRY_DELAY_S, _RETRY_DELAY_S * 2.0 ** self._errors_by_target[target]
            )
        except (WikiholtError, OSError) as error:
            target.mark_unavailable()
            if isinstance(error, ForeignCollection) and target not in self._reported:
                self._reported.add(target)
                _LOG.error("%s (%s)", error.message, error.hint)
            return MAX_RETRY_DELAY_S

    def reset_connection(self) -> None:
        """Have `begin` called once more when Chroma is next reached."""
        self._connected_to = ""

    def _connect(self) -> str:
        """Have Chroma run and answer; returns which incarnation of it does."""
        try:
            self.host.start()
        except ForeignCollection as error:
            self.unavailable_reason = error.message
            raise
        try:
            incarnation = self.api.check_heartbeat(self._heartbeat)
        except ChromaError as refusal:
            raise ChromaUnavailable(refusal.message) from refusal
        if self._connected_to != f"{incarnation}.":
            if self._connected_to:
                self._record_failure()  # it has ended since, and has been started again: not too often
            self.api.ensure_database()
            self._on_connected(self.api)
            self._connected_to = f"{incarnation}."
        return incarnation

    def _clear_failures(self) -> None:
        self.unavailable_reason, self._error_count = "", 0

    def _record_failure(self) -> None:
        now = time.monotonic()
        self._failures = 1 if now - self._failed_at > _FAILURE_RESET_S else self._failures + 1
        self._failed_at = now

    def _handle_unavailable(self, error: WikiholtError) -> None:
        if not self.unavailable_reason:
            _LOG.warning("Chroma is away; exact search answers meanwhile: %s", error.message)
        self.unavailable_reason, self._connected_to = error.message, ""
        self._record_failure()
        self.metrics.add("timeouts" if isinstance(error, ChromaUnavailable) and error.timed_out else "failures")
        if isinstance(error, ChromaUnavailable) and error.timed_out:
            self.host.kill()

    def _handle_error(self, error: ChromaError) -> float | None:
        """A collection that could not even be filled anew; where everything fails, our own directory is renewed."""
        self.metrics.add("failures")
        self._error_count += 1
        _LOG.warning("a collection of Chroma's cannot be used; exact search answers meanwhile: %s", error.message)
        broken = self.host.is_own_child and error.http_status == 500 and self._error_count >= 2
        if not broken or time.monotonic() - self._reset_at < _RESET_INTERVAL_S:
            return None
        self._reset_at, self._error_count, self._connected_to = time.monotonic(), 0, ""
        _LOG.warning("Chroma's directory is damaged: it is set aside, and every collection is filled anew")
        self.metrics.add("renewals")
        try:
            self.api.request_reset()
        except (ChromaUnavailable, ChromaError):
            self.host.kill()
        return _RETRY_DELAY_S
