"""The background worker of a process that keeps Chroma running and syncs all collections, one at a time.

One at a time, so that a collection that crashes Chroma can be identified. After a failure the worker waits with
exponential backoff of at most a minute; in the meantime searches are exact and do not wait.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from wikiholt.caches.chroma.client import (
    ChromaError,
    ChromaMetrics,
    ChromaUnavailable,
    CollectionBusy,
    ForeignCollection,
)
from wikiholt.caches.chroma.hosts import ChromaHost
from wikiholt.caches.chroma.record_layout import Cancelled
from wikiholt.caches.chroma.rest_api import ChromaApi
from wikiholt.errors import MissingDependency, WikiholtError

if TYPE_CHECKING:
    from wikiholt.caches.chroma.chroma_cache import ChromaVectorCache

_LOG = logging.getLogger(__name__)

MAX_RETRY_DELAY_S = 60.0
_RETRY_DELAY_S = 0.5
_FAILURE_RESET_S = 120.0
"""Time without a failure after which the backoff restarts."""
_RESET_INTERVAL_S = 600.0
_STOP_TIMEOUT_S = 2.0
"""How long stopping waits for a request in progress. One that takes longer is abandoned: Chroma may hang."""
_MAX_ERROR_RETRY_DELAY_S = 600.0
"""Longest delay before a collection is retried after repeated errors."""


class CollectionSyncWorker:
    """Syncs the collections of one process."""

    def __init__(
        self,
        host: ChromaHost,
        api: ChromaApi,
        metrics: ChromaMetrics,
        *,
        get_wiki_ids: Callable[[], Iterable[str]],
        on_connected: Callable[[ChromaApi], None] = lambda _: None,
        heartbeat_timeout_s: float = 15.0,
    ) -> None:
        """`on_connected` is called after each new connection; `heartbeat_timeout_s` is that of a health check."""
        self.host = host
        self.api = api
        self.metrics = metrics
        self.get_wiki_ids = get_wiki_ids
        self._on_connected = on_connected
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self.unavailable_reason = ""
        """Why Chroma is unavailable, for the operator; empty while it is available."""
        self._failures = 0
        self._failed_at = 0.0
        self._error_count = 0
        self._reset_at = -_RESET_INTERVAL_S
        self._connected_to = ""
        self._due_at: dict[ChromaVectorCache, float] = {}
        self._reported: WeakSet[ChromaVectorCache] = WeakSet()
        self._errors_by_target: WeakKeyDictionary[ChromaVectorCache, int] = WeakKeyDictionary()
        self._init_process()

    def _init_process(self) -> None:
        """Create the lock and the thread state. A forked child needs its own."""
        self._process_id = os.getpid()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._current: ChromaVectorCache | None = None
        self._busy: ChromaVectorCache | None = None
        self._stopping = False

    @property
    def is_up(self) -> bool:
        return not self.unavailable_reason and bool(self._connected_to)

    def enqueue(self, target: "ChromaVectorCache") -> None:
        """Schedule a sync of this collection. Returns at once."""
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

    def wait(self, target: "ChromaVectorCache", timeout_s: float | None) -> bool:
        """Wait until the sync has ended. Returns whether it did in time; true at once during a backoff."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._is_pending(target), timeout_s)

    def remove(self, target: "ChromaVectorCache") -> None:
        """Stop syncing the collection. A running sync is cancelled, and the call waits a few seconds for it."""
        with self._changed:
            self._due_at.pop(target, None)
            if self._current is target:
                self._current = None
            self._changed.wait_for(lambda: self._busy is not target, _STOP_TIMEOUT_S)

    def close(self) -> None:
        with self._changed:
            self._stopping, self._due_at, thread = True, {}, self._thread
            self._changed.notify_all()
        if thread is not None and self._process_id == os.getpid():
            thread.join(_STOP_TIMEOUT_S)

    def _is_pending(self, target: "ChromaVectorCache") -> bool:
        is_due = (
            target in self._due_at
            and self._due_at[target] <= time.monotonic() + 2 * _RETRY_DELAY_S
            and not self._get_retry_delay()
        )
        return not self._stopping and (self._current is target or is_due)

    # ── the thread ───────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        while (target := self._take_next()) is not None:
            delay_s: float | None = MAX_RETRY_DELAY_S
            try:
                delay_s = self._sync_target(target)
            except Exception:  # noqa: BLE001 - an error in one collection must not stop the syncs of the others
                if self._current is target:  # otherwise the cache was closed during the sync
                    _LOG.exception("internal error while syncing a Chroma collection")
            with self._changed:
                self._busy = None
                if self._current is target:
                    self._current = None
                    if delay_s is not None:
                        self._due_at[target] = time.monotonic() + delay_s
                self._changed.notify_all()

    def _take_next(self) -> "ChromaVectorCache | None":
        """Wait for the next collection that is due; None when the worker stops."""
        with self._changed:
            while not self._stopping:
                now, delay_s = time.monotonic(), self._get_retry_delay()
                due = [target for target, due_at in self._due_at.items() if due_at <= now]
                if due and not delay_s:
                    self._current = self._busy = min(due, key=self._due_at.__getitem__)
                    del self._due_at[self._current]
                    return self._current
                next_due_s = min((due_at - now for due_at in self._due_at.values()), default=None)
                self._changed.wait(delay_s or next_due_s)
            return None

    def _get_retry_delay(self) -> float:
        """Return the seconds until Chroma is tried again."""
        if not self._failures:
            return 0.0
        backoff_s = min(MAX_RETRY_DELAY_S, _RETRY_DELAY_S * 2.0 ** (self._failures - 1))
        return max(0.0, self._failed_at + backoff_s - time.monotonic())

    def _sync_target(self, target: "ChromaVectorCache") -> float | None:
        """Sync one collection. Returns the delay in seconds before the next sync, or None if none is needed."""
        try:
            instance_id = self._connect()
            target.sync_collection(self.api, instance_id, lambda: self._stopping or self._current is not target)
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
        except ChromaError as error:
            target.mark_unavailable()
            errors = self._errors_by_target[target] = self._errors_by_target.get(target, 0) + 1
            return self._handle_error(error) or min(_MAX_ERROR_RETRY_DELAY_S, _RETRY_DELAY_S * 2.0**errors)
        except (WikiholtError, OSError) as error:
            target.mark_unavailable()
            if isinstance(error, ForeignCollection) and target not in self._reported:
                self._reported.add(target)
                _LOG.error("%s (%s)", error.message, error.hint)
            return MAX_RETRY_DELAY_S

    def reset_connection(self) -> None:
        """Treat the next connection as new, so that `on_connected` is called again."""
        self._connected_to = ""

    def _connect(self) -> str:
        """Start and check Chroma. Returns its instance id.

        Raises ChromaUnavailable, ForeignCollection and MissingDependency.
        """
        try:
            self.host.start()
        except ForeignCollection as error:
            self.unavailable_reason = error.message
            raise
        try:
            instance_id = self.api.check_heartbeat(self._heartbeat_timeout_s)
        except ChromaError as error:
            raise ChromaUnavailable(error.message) from error
        if self._connected_to != f"{instance_id}.":
            if self._connected_to:
                self._record_failure()  # it was restarted in the meantime: limit how often that happens
            self.api.ensure_database()
            self._on_connected(self.api)
            self._connected_to = f"{instance_id}."
        return instance_id

    def _clear_failures(self) -> None:
        self.unavailable_reason, self._error_count = "", 0

    def _record_failure(self) -> None:
        now = time.monotonic()
        self._failures = 1 if now - self._failed_at > _FAILURE_RESET_S else self._failures + 1
        self._failed_at = now

    def _handle_unavailable(self, error: WikiholtError) -> None:
        if not self.unavailable_reason:
            _LOG.warning("Chroma is unavailable; searches are exact until it is back: %s", error.message)
        self.unavailable_reason, self._connected_to = error.message, ""
        self._record_failure()
        self.metrics.add_failure(error)
        if isinstance(error, ChromaUnavailable) and error.timed_out:
            self.host.kill()

    def _handle_error(self, error: ChromaError) -> float | None:
        """Handle a collection that could not even be rebuilt.

        If several fail in the child process, reset its directory and return the delay before the next attempt.
        """
        self.metrics.add("failures")
        self._error_count += 1
        _LOG.warning("a Chroma collection cannot be used; searches are exact until it is repaired: %s", error.message)
        is_broken = self.host.is_own_child and error.http_status == 500 and self._error_count >= 2
        if not is_broken or time.monotonic() - self._reset_at < _RESET_INTERVAL_S:
            return None
        self._reset_at, self._error_count, self._connected_to = time.monotonic(), 0, ""
        _LOG.warning("Chroma's directory is damaged: resetting it")
        try:
            self.api.request_reset()
        except (ChromaUnavailable, ChromaError):
            self.host.kill()
        return _RETRY_DELAY_S
