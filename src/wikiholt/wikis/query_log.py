"""The query log of a wiki: which searches were made, written in the background so that no search waits or fails.

A `WikiQueryLog` holds the records of one wiki until they are written; what does not fit is counted and lost. One
`QueryLogWriter` thread per process writes those of all wikis about every half second. Both may be used from any
thread. A forked child starts without records and with its own thread; the parent writes what it had.
"""

import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Condition, Thread

from wikiholt.domain.search import PageFilter, QueryRecord, QueryRetention, SearchInterface, SearchResult
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import IndexUnavailable, QueryLogNotFound, WikiholtError
from wikiholt.wikis.query_log_table import QueryLogTable
from wikiholt.wikis.query_report import QueryReport, ReportPeriod, build_report

_LOG = logging.getLogger(__name__)

_MAX_QUERY_CHARS = 500
"""Recorded characters of a query."""
_MAX_SHOWN_PAGES = 20
"""Recorded pages of a result. Few people look further."""
_MAX_PATHS_CHARS = 4000
"""Maximum total length of their paths."""
_MAX_BUFFERED_RECORDS = 1000
"""Records per wiki that may wait: two thousand searches a second for the length of a batch."""
_BATCH_DELAY_S = 0.5
"""Seconds over which a batch is collected."""
_RETRY_DELAY_S = 5.0
"""Delay before a failed write is tried again."""
_CLOSE_TIMEOUT_S = 5.0
"""Seconds that closing waits for remaining writes."""

_NO_FILTER = PageFilter()


def make_record(result: SearchResult, interface: SearchInterface, *, filtered: bool) -> QueryRecord:
    """The record of a search result. Pure except for the time."""
    score = max((hit.score for hit in result.hits), default=0.0)
    return QueryRecord(
        at=time.time(),
        interface=interface.value,
        query=result.query[:_MAX_QUERY_CHARS],
        mode=result.mode.value,
        filtered=filtered,
        hits=len(result.hits),
        nothing_relevant=result.nothing_relevant,
        degraded=result.degraded,
        score=score,
        ms=result.took_ms,
        did_you_mean=result.did_you_mean[:_MAX_QUERY_CHARS],
        pages=_get_shown_pages(result),
    )


def _get_shown_pages(result: SearchResult) -> tuple[str, ...]:
    # A page may have several hits, each with another passage.
    hits = result.hits[:_MAX_SHOWN_PAGES]
    also_on = (place.path for hit in hits for place in hit.also_on)
    paths = tuple(dict.fromkeys([*(hit.path for hit in hits), *also_on]))
    remaining = _MAX_PATHS_CHARS
    for index, path in enumerate(paths):
        remaining -= len(path)
        if remaining < 0:
            return paths[:index]
    return paths


class WikiQueryLog:
    """The queries of one wiki. Safe to use from many threads."""

    def __init__(
        self,
        writer: "QueryLogWriter",
        log: QueryLogTable,
        open_index: Callable[[], AbstractContextManager[WikiIndex]],
        *,
        enabled: bool,
    ) -> None:
        self.enabled = enabled
        """Whether searches are recorded."""
        self._writer = writer
        self._log = log
        self._open_index = open_index
        self._records: deque[QueryRecord] = deque()
        """Records that are not written yet."""
        self._lost = 0
        self._failing = False
        self._not_before = 0.0
        self._pid = os.getpid()

    def record(self, result: SearchResult, interface: SearchInterface | None, *, filtered: bool) -> None:
        """Record a search, if that is enabled and the search came from an interface."""
        if self.enabled and interface is not None:
            self.add(make_record(result, interface, filtered=filtered))

    def add(self, record: QueryRecord) -> None:
        """Add a record. Takes microseconds; the record is lost if too many are not written yet."""
        if self._pid != os.getpid():
            self._records, self._lost, self._pid = deque(), 0, os.getpid()
        if len(self._records) >= _MAX_BUFFERED_RECORDS:
            self._lost += 1
            self._writer.lost += 1
            return
        self._records.append(record)
        self._writer.notify(self)

    def discard(self) -> None:
        """Drop unwritten records, because the wiki is being removed or its log was cleared."""
        self._records = deque()

    def is_due(self, now: float) -> bool:
        return now >= self._not_before

    def flush(self) -> bool:
        """Write the buffered records and return whether all are written. Only for the writer; never raises."""
        lost, records = self._lost, self._records
        try:
            batch = list(records.copy())
            if not batch:
                return True
            self._log.write([replace(batch[0], lost=lost), *batch[1:]], self._writer.retention)
        except Exception as error:  # noqa: BLE001 - a failing log must not affect searches
            self._record_failure(error)
            return False
        self._failing = False
        self._lost -= lost
        for _ in batch:
            records.popleft()
        self._writer.written += len(batch)
        return not self._records

    def _record_failure(self, error: Exception) -> None:
        self._not_before = time.monotonic() + _RETRY_DELAY_S
        if not self._failing:
            self._failing = True
            reason = error.message if isinstance(error, WikiholtError) else type(error).__name__
            _LOG.warning("searches of a wiki cannot be recorded (%s); the write is retried", reason)

    def build_report(self, days: float | None = None, limit: int = 10) -> QueryReport:
        """Report on the searches of the last `days` days, or of the entire log. Raises QueryLogNotFound."""
        until = datetime.now(UTC)
        since = until - timedelta(days=min(days or self._writer.retention.max_days, self._writer.retention.max_days))
        log = self._log.read(since.timestamp())
        if log is None and not self.enabled:
            raise self._build_no_log_error()
        with suppress(WikiholtError):  # old records were not read; if they cannot be deleted now, they are later
            self.trim()
        damaged = log.damaged_at if log else None
        period = ReportPeriod(since, until, self.enabled, datetime.fromtimestamp(damaged, UTC) if damaged else None)
        return build_report(log.records if log else (), self._list_paths(), period, limit)

    def read_records(self) -> Sequence[QueryRecord]:
        """All records, oldest first; none if nothing was recorded."""
        log = self._log.read(0.0)
        return log.records if log else ()

    def clear(self) -> int:
        """Delete all records and return their number. Raises QueryLogNotFound."""
        if self._log.read(datetime.now(UTC).timestamp()) is None and not self.enabled:
            raise self._build_no_log_error()
        self.discard()
        return self._log.clear()

    def trim(self) -> None:
        """Delete records older than the retention, even if logging is disabled."""
        self._log.trim(self._writer.retention)

    def _list_paths(self) -> frozenset[str] | None:
        """Paths of the pages that a search can find; hidden ones have no chunks. None without an index."""
        try:
            with self._open_index() as index:
                return frozenset(page.path for page in index.list_pages(_NO_FILTER, None)[1] if page.chunks)
        except IndexUnavailable:
            return None

    @staticmethod
    def _build_no_log_error() -> QueryLogNotFound:
        return QueryLogNotFound(
            "Searches of this wiki are not recorded.",
            hint="Enable it: `wikiholt set SLUG log_queries=true`, or queries.log = true in the settings for all.",
        )


class QueryLogWriter:
    """Writes the buffers of all wikis. The thread starts with the first record."""

    def __init__(
        self, open_log: Callable[[str], QueryLogTable], retention: QueryRetention, batch_delay_s: float = _BATCH_DELAY_S
    ) -> None:
        self.open_log = open_log
        self.retention = retention
        self.written = 0
        self.lost = 0
        self._batch_delay_s = batch_delay_s
        self._reset()

    def _reset(self) -> None:
        self._changed = Condition()
        self._pending: dict[WikiQueryLog, None] = {}
        self._thread: Thread | None = None
        self._closing = False
        self._pid = os.getpid()

    def notify(self, log: WikiQueryLog) -> None:
        """Announce that the log of a wiki has records to write."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if self._closing or log in self._pending:
                return
            if self._thread is None:
                thread = Thread(target=self._run, name="wikiholt-queries", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no thread can be started now; the next search tries again
                    return
                self._thread = thread
            self._pending[log] = None
            self._changed.notify()

    def close(self) -> None:
        """Write the remaining records, for a few seconds at most, and reject new ones."""
        if self._pid != os.getpid():
            self._reset()  # a thread of the parent may hold the lock
        with self._changed:
            self._closing = True
            thread = self._thread
            self._changed.notify()
        if thread is not None:
            thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing)
                self._changed.wait_for(lambda: self._closing, self._batch_delay_s)
                last, due = self._closing, self._pending
                now = time.monotonic()
                self._pending = {} if last else {log: None for log in due if not log.is_due(now)}
            for log in due:
                if (last or log.is_due(now)) and not log.flush() and not last:
                    with self._changed:
                        self._pending[log] = None
            if last:
                return
