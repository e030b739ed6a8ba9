"""What one wiki was asked: noted if that is wanted, reported, forgotten."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta

from wikiholt.asked.diary import QueryBuffer, QueryLogWriter
from wikiholt.asked.entries import make_record
from wikiholt.asked.report import ReportPeriod, QueryReport, build_report
from wikiholt.errors import IndexUnavailable, QueryLogNotFound, WikiholtError
from wikiholt.model import SearchResult, PageFilter, SearchInterface
from wikiholt.ports import WikiIndex

_NO_FILTER = PageFilter()


class WikiQueryLog:
    """The queries of one wiki. Safe to use from many threads."""

    def __init__(
        self, writer: QueryLogWriter, wiki_id: str, open_index: Callable[[], AbstractContextManager[WikiIndex]], *, enabled: bool
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
