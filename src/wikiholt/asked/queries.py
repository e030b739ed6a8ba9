"""What one wiki was asked: noted if that is wanted, reported, forgotten."""

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import UTC, datetime, timedelta

from wikiholt.asked.diary import Diary, Scribe
from wikiholt.asked.entries import written_down
from wikiholt.asked.report import Period, QueryReport, reported
from wikiholt.errors import IndexFault, NoQueryLog, WikiholtError
from wikiholt.model import Answer, Filter, Surface
from wikiholt.ports import WikiIndex

_EVERY = Filter()


class Queries:
    """The queries of one wiki. Safe to use from many threads."""

    def __init__(
        self, scribe: Scribe, wiki_id: str, index: Callable[[], AbstractContextManager[WikiIndex]], *, logging: bool
    ) -> None:
        self.logging = logging
        """Whether searches are written down."""
        self._bounds = scribe.bounds
        self._log = scribe.log_of(wiki_id)
        self._diary = Diary(self._log, scribe) if logging else None
        self._index = index

    def note(self, answer: Answer, surface: Surface | None, *, filtered: bool) -> None:
        """Have the search that was answered so written down, if searches are, and somebody asked it."""
        if self._diary is not None and surface is not None:
            self._diary.note(written_down(answer, surface, filtered=filtered))

    def report(self, days: float | None = None, limit: int = 10) -> QueryReport:
        """What was asked in the last so many days, or as far as the log goes back; raises NoQueryLog."""
        until = datetime.now(UTC)
        since = until - timedelta(days=min(days or self._bounds.days, self._bounds.days))
        found = self._log.read(since.timestamp())
        if found is None and not self.logging:
            raise self._none()
        with suppress(WikiholtError):  # what is too old was not read; where it cannot be removed now it is later
            self.trim()
        damaged = found.damaged_at if found else None
        about = Period(since, until, self.logging, datetime.fromtimestamp(damaged, UTC) if damaged else None)
        return reported(found.searches if found else (), self._paths(), about, limit)

    def clear(self) -> int:
        """Forget everything that was asked, and say how many entries that were; raises NoQueryLog."""
        if self._log.read(datetime.now(UTC).timestamp()) is None and not self.logging:
            raise self._none()
        self.discard()
        return self._log.clear()

    def trim(self) -> None:
        """Forget what is older than it may be; in a log that nobody writes any more, too."""
        self._log.trim(self._bounds)

    def discard(self) -> None:
        """Forget what is not written yet."""
        if self._diary is not None:
            self._diary.discard()

    def _paths(self) -> frozenset[str] | None:
        """The pages that a search can find; hidden ones have no passage that it could."""
        try:
            with self._index() as index:
                return frozenset(page.path for page in index.list_pages(_EVERY, None)[1] if page.chunks)
        except IndexFault:
            return None

    @staticmethod
    def _none() -> NoQueryLog:
        return NoQueryLog(
            "Searches of this wiki are not written down.",
            hint="Turn that on: `wikiholt set SLUG log_queries=true`, or queries.log = true in the settings for all.",
        )
