"""From an answer to what is written down of it (pure)."""

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from threading import Condition, Thread

from wikiholt.domain.search import PageFilter, QueryRecord, QueryRetention, SearchInterface, SearchResult
from wikiholt.domain.storage_protocols import QueryLog, WikiIndex
from wikiholt.errors import IndexUnavailable, QueryLogNotFound, WikiholtError
from wikiholt.wikis.query_report import QueryReport, ReportPeriod, build_report

_MAX_QUERY_CHARS = 500
"""Characters of a query that are kept."""
_MAX_SHOWN_PAGES = 20
"""Pages of an answer that are kept; hardly anybody looks further."""
_MAX_PATHS_CHARS = 4000
"""Characters that their paths may have together."""


def make_record(result: SearchResult, interface: SearchInterface, *, filtered: bool) -> QueryRecord:
    """The entry for an answer that was just given."""
    score = max((hit.score for hit in result.hits), default=0.0)
    return QueryRecord(
        at=time.time(),
        surface=interface.value,
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
    # One page may have several hits, each another of its passages.
    paths = tuple(dict.fromkeys([hit.path for hit in result.hits[:_MAX_SHOWN_PAGES]]))
    room = _MAX_PATHS_CHARS
    for number, path in enumerate(paths):
        room -= len(path)
        if room < 0:
            return paths[:number]
    return paths


# Searches on their way into a query log: no search waits for that, and none fails by it. A Diary holds what one wiki
# was asked until it is written; what does not fit into it is counted and lost. The Scribe, one thread of the process
# for all wikis, writes what is in diaries, a batch a wiki, about every half second. Both may be used from any thread.
# A forked child begins with empty diaries and a thread of its own: what its parent had is written by the parent.


_LOG = logging.getLogger(__name__)

_MAX_BUFFERED_RECORDS = 1000
"""Entries of a wiki that may wait: two thousand searches a second for as long as a batch is gathered."""
_BATCH_DELAY_S = 0.5
"""Seconds in which a batch is gathered."""
_RETRY_DELAY_S = 5.0
"""Seconds until a log that could not be written is tried again."""
_CLOSE_TIMEOUT_S = 5.0
"""Seconds that the end of a process waits for what is left."""


class QueryBuffer:
    """What one wiki was asked and is not written yet. Bound to that wiki's log."""

    def __init__(self, log: QueryLog, writer: "QueryLogWriter", capacity: int = _MAX_BUFFERED_RECORDS) -> None:
        self._log = log
        self._writer = writer
        self._capacity = capacity
        self._records: deque[QueryRecord] = deque()
        self._lost = 0
        self._failing = False
        self._not_before = 0.0
        self._pid = os.getpid()

    def add(self, record: QueryRecord) -> None:
        """Have this written down soon; takes microseconds, and loses it where there is no room."""
        if self._pid != os.getpid():
            self._records, self._lost, self._pid = deque(), 0, os.getpid()
        if len(self._records) >= self._capacity:
            self._lost += 1
            self._writer.lost += 1
            return
        self._records.append(record)
        self._writer.notify(self)

    def discard(self) -> None:
        """Forget what is not written yet: its wiki is being removed, or its log was cleared."""
        self._records = deque()

    def is_due(self, now: float) -> bool:
        return now >= self._not_before

    def flush(self) -> bool:
        """Write what waits; whether all of it is written. For the scribe alone; never raises."""
        lost, waiting = self._lost, self._records
        try:
            batch = list(waiting.copy())
            if not batch:
                return True
            self._log.write([replace(batch[0], lost=lost), *batch[1:]], self._writer.retention)
        except Exception as error:  # noqa: BLE001 - whatever it is costs the log, and nobody's search
            self._record_failure(error)
            return False
        self._failing = False
        self._lost -= lost
        self._writer.written += len(batch)
        for _ in batch:
            waiting.popleft()
        return not self._records

    def _record_failure(self, error: Exception) -> None:
        self._not_before = time.monotonic() + _RETRY_DELAY_S
        if not self._failing:
            self._failing = True
            why = error.message if isinstance(error, WikiholtError) else type(error).__name__
            _LOG.warning("searches of a wiki cannot be written down (%s); they are tried again", why)


class QueryLogWriter:
    """Writes diaries. Nothing runs until the first search is noted."""

    def __init__(
        self, open_log: Callable[[str], QueryLog], retention: QueryRetention, batch_delay_s: float = _BATCH_DELAY_S
    ) -> None:
        self.open_log = open_log
        self.retention = retention
        self.written = 0
        self.lost = 0
        self._batch_delay_s = batch_delay_s
        self._reset()

    def _reset(self) -> None:
        self._changed = Condition()
        self._pending: dict[QueryBuffer, None] = {}
        self._thread: Thread | None = None
        self._closing = False
        self._pid = os.getpid()

    def notify(self, buffer: QueryBuffer) -> None:
        """There is something in this diary."""
        if self._pid != os.getpid():
            self._reset()
        with self._changed:
            if self._closing or buffer in self._pending:
                return
            if self._thread is None:
                thread = Thread(target=self._run, name="wikiholt-queries", daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # no more threads may be started; the next search tries again
                    return
                self._thread = thread
            self._pending[buffer] = None
            self._changed.notify()

    def close(self) -> None:
        """Write what there is, as far as that can be done in a few seconds, and take nothing more."""
        if self._pid != os.getpid():
            self._reset()  # the lock may be held by a thread of the parent
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
                self._pending = {} if last else {diary: None for diary in due if not diary.is_due(now)}
            for diary in due:
                if (last or diary.is_due(now)) and not diary.flush() and not last:
                    with self._changed:
                        self._pending[diary] = None
            if last:
                return


# What one wiki was asked: noted if that is wanted, reported, forgotten.


_NO_FILTER = PageFilter()


class WikiQueryLog:
    """The queries of one wiki. Safe to use from many threads."""

    def __init__(
        self,
        writer: QueryLogWriter,
        wiki_id: str,
        open_index: Callable[[], AbstractContextManager[WikiIndex]],
        *,
        enabled: bool,
    ) -> None:
        self.enabled = enabled
        """Whether searches are written down."""
        self._retention = writer.retention
        self._log = writer.open_log(wiki_id)
        self._buffer = QueryBuffer(self._log, writer) if enabled else None
        self._open_index = open_index

    def record(self, result: SearchResult, interface: SearchInterface | None, *, filtered: bool) -> None:
        """Have the search that was answered so written down, if searches are, and somebody asked it."""
        if self._buffer is not None and interface is not None:
            self._buffer.add(make_record(result, interface, filtered=filtered))

    def build_report(self, days: float | None = None, limit: int = 10) -> QueryReport:
        """What was asked in the last so many days, or as far as the log goes back; raises NoQueryLog."""
        until = datetime.now(UTC)
        since = until - timedelta(days=min(days or self._retention.max_days, self._retention.max_days))
        found = self._log.read(since.timestamp())
        if found is None and not self.enabled:
            raise self._build_no_log_error()
        with suppress(WikiholtError):  # what is too old was not read; where it cannot be removed now it is later
            self.trim()
        damaged = found.damaged_at if found else None
        about = ReportPeriod(since, until, self.enabled, datetime.fromtimestamp(damaged, UTC) if damaged else None)
        return build_report(found.records if found else (), self._list_paths(), about, limit)

    def clear(self) -> int:
        """Forget everything that was asked, and say how many entries that were; raises NoQueryLog."""
        if self._log.read(datetime.now(UTC).timestamp()) is None and not self.enabled:
            raise self._build_no_log_error()
        self.discard()
        return self._log.clear()

    def trim(self) -> None:
        """Forget what is older than it may be; in a log that nobody writes any more, too."""
        self._log.trim(self._retention)

    def discard(self) -> None:
        """Forget what is not written yet."""
        if self._buffer is not None:
            self._buffer.discard()

    def _list_paths(self) -> frozenset[str] | None:
        """The pages that a search can find; hidden ones have no passage that it could."""
        try:
            with self._open_index() as index:
                return frozenset(page.path for page in index.list_pages(_NO_FILTER, None)[1] if page.chunks)
        except IndexUnavailable:
            return None

    @staticmethod
    def _build_no_log_error() -> QueryLogNotFound:
        return QueryLogNotFound(
            "Searches of this wiki are not written down.",
            hint="Turn that on: `wikiholt set SLUG log_queries=true`, or queries.log = true in the settings for all.",
        )
