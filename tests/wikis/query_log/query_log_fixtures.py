"""A wiki with a query log, in a complete application."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tests.support.git_repository import Repository
from tests.support.wait import wait_until
from wikiholt.api.bootstrap import build_service
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.search import QueryRecord, QueryRetention, SearchInterface
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.query_log import QueryLogWriter
from wikiholt.wikis.service import WikiService
from wikiholt.wikis.sqlite_query_log import SqliteQueryLog

PAGES: dict[str, str | bytes | None] = {
    "Heron.md": "# Heron\n\nA grey heron stands still in the reeds at dawn.\n",
    "Pump.md": "# Pump\n\nThe pump in the cellar hums when the river is high.\n",
    "Rota.md": "# Rota\n\nAda feeds the hens on Monday, Grace on Tuesday.\n",
}
RETENTION = QueryRetention(30, 1000)


class QueryLogFixture:
    """A data directory with the wiki `notes` in it."""

    def __init__(self, place: Path, settings: Mapping[str, object] | None = None) -> None:
        self.data = place / "data"
        self.repository = Repository(place / "notes")
        self.repository.commit(PAGES)
        self.settings = {"queries.log": True} if settings is None else dict(settings)
        self.service = self.open_service()
        self.service.add("notes", str(self.repository.path), {})
        self.wiki.sync()

    def open_service(self) -> WikiService:
        service = build_service(load_settings(self.data, overrides=self.settings))
        embedder = FakeEmbedder()
        service.components = replace(service.components, embedder=lambda: embedder, identity=None)
        assert service.components.query_log_writer is not None
        service.components.query_log_writer._batch_delay_s = 0.02
        return service

    @property
    def wiki(self) -> WikiHandle:
        return self.service.get_handle("notes")

    @property
    def directory(self) -> Path:
        return self.service.components.store.get_directory(self.wiki.wiki.id)

    @property
    def file(self) -> Path:
        return self.directory / "queries.sqlite"

    @property
    def writer(self) -> QueryLogWriter:
        assert self.service.components.query_log_writer is not None
        return self.service.components.query_log_writer

    def search(self, query: str, interface: SearchInterface | None = SearchInterface.CLI, n: int = 1) -> None:
        self.wiki.search(SearchRequest(query, n), interface=interface)

    def wait_for_records(self, count: int) -> None:
        """Wait until `count` searches are written."""
        wait_until(lambda: self.writer.written >= count)

    def open_log(self) -> SqliteQueryLog:
        return SqliteQueryLog(self.directory)

    def read_queries(self) -> list[str]:
        found = self.open_log().read(0)
        return [searched.query for searched in found.records] if found else []


def make_query_record(query: str, at: float | None = None, **changes: object) -> QueryRecord:
    """A record of a normal search with the given changes."""
    plain = QueryRecord(
        at=time.time() if at is None else at,
        interface="http",
        query=query,
        mode="hybrid",
        filtered=False,
        hits=2,
        nothing_relevant=False,
        degraded=False,
        score=0.75,
        ms=5.0,
        did_you_mean="",
        pages=("Heron", "Pump"),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]
