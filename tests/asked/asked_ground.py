"""A wiki whose searches are written down, in the product's own wiring."""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from git_repository import Repository

from wikiholt.asked import Scribe
from wikiholt.handle import WikiHandle
from wikiholt.model import QueryBounds, Searched, Surface
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.settings import load
from wikiholt.stores.sqlite.queries import SqliteQueryLog
from wikiholt.testing import FakeEmbedder
from wikiholt.wiring import build

PAGES: dict[str, str | bytes | None] = {
    "Heron.md": "# Heron\n\nA grey heron stands still in the reeds at dawn.\n",
    "Pump.md": "# Pump\n\nThe pump in the cellar hums when the river is high.\n",
    "Rota.md": "# Rota\n\nAda feeds the hens on Monday, Grace on Tuesday.\n",
}
BOUNDS = QueryBounds(30, 1000)


class Ground:
    """A data directory with the wiki `notes` in it."""

    def __init__(self, place: Path, settings: Mapping[str, object] | None = None) -> None:
        self.data = place / "data"
        self.repository = Repository(place / "notes")
        self.repository.commit(PAGES)
        self.settings = {"queries.log": True} if settings is None else dict(settings)
        self.service = self.opened()
        self.service.add("notes", str(self.repository.path), {})
        self.wiki.sync()

    def opened(self) -> Service:
        service = build(load(self.data, overrides=self.settings))
        embedder = FakeEmbedder()
        service.workshop = replace(service.workshop, embedder=lambda: embedder, identity=None)
        assert service.workshop.scribe is not None
        service.workshop.scribe._gather = 0.02
        return service

    @property
    def wiki(self) -> WikiHandle:
        return self.service.wiki("notes")

    @property
    def directory(self) -> Path:
        return self.service.workshop.store.directory(self.wiki.wiki.id)

    @property
    def file(self) -> Path:
        return self.directory / "queries.sqlite"

    @property
    def scribe(self) -> Scribe:
        assert self.service.workshop.scribe is not None
        return self.service.workshop.scribe

    def ask(self, query: str, surface: Surface | None = Surface.CLI, n: int = 1) -> None:
        self.wiki.search(Request(query, n), surface=surface)

    def settled(self, count: int) -> None:
        """Wait until so many searches are written."""
        until(lambda: self.scribe.written >= count)

    def log(self) -> SqliteQueryLog:
        return SqliteQueryLog(self.directory)

    def queries(self) -> list[str]:
        found = self.log().read(0)
        return [searched.query for searched in found.searches] if found else []


def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def searched(query: str, at: float | None = None, **named: object) -> Searched:
    """An entry as a search in good order leaves it, but for what is named."""
    plain = Searched(
        at=time.time() if at is None else at,
        surface="http",
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
    return replace(plain, **named)  # type: ignore[arg-type]
