"""A directory of real repositories, a data directory, and keepers over both, with a stand-in for the model."""

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import Event, Lock

from git_repository import Repository

from wikiholt.errors import IndexMissing, NothingIndexed, WikiNotFound
from wikiholt.handle import Parts, Workshop
from wikiholt.keeper import Finding, Keeper, Pace
from wikiholt.model import Answer, Floats, Wiki
from wikiholt.pages import Pipeline
from wikiholt.registry import Registry
from wikiholt.search import Request
from wikiholt.service import Service
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.vectors.exact import ExactCache


class WatchedEmbedder(FakeEmbedder):
    """Writes down in which order texts came, and holds those that contain a word until it is let go."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.reached = Event()
        self._held: dict[str, Event] = {}
        self._lock = Lock()

    def hold(self, word: str) -> Event:
        """Texts with this word wait, until the event that is returned is set."""
        self._held[word] = Event()
        return self._held[word]

    def passages(self, texts: Sequence[str]) -> Floats:
        for word, gate in list(self._held.items()):
            if any(word in text for text in texts):
                self.reached.set()
                assert gate.wait(60)
        if self.seconds:
            Event().wait(self.seconds)
        with self._lock:
            return super().passages(texts)

    def first(self, word: str) -> int:
        """When a text with this word was first embedded, in order of all texts."""
        return next(at for at, text in enumerate(self.embedded) if word in text)

    def last(self, word: str) -> int:
        return max(at for at, text in enumerate(self.embedded) if word in text)


class Ground:
    """What a test stands on."""

    def __init__(self, directory: Path, embedder: FakeEmbedder | None = None) -> None:
        self.data = directory / "data"
        self.wikis = directory / "wikis"
        self.wikis.mkdir(parents=True, exist_ok=True)
        self.embedder = embedder or WatchedEmbedder()
        self.store = SqliteStore(self.data / "wikis")
        self.service = self.opened()
        self.keepers: list[Keeper] = []

    def opened(self) -> Service:
        shop = Workshop(
            self.store,
            lambda: self.embedder,
            lambda index, wiki_id: ExactCache(index, self.store.directory(wiki_id)),
            lambda _, __: None,
            30.0,
        )
        return Service(Registry(self.data / "registry.sqlite"), shop, self.parts)

    def parts(self, wiki: Wiki) -> Parts:
        return Parts(GitSource(Path(wiki.source)), Pipeline(), "{path}")

    def repository(self, slug: str, pages: dict[str, str | bytes | None]) -> Repository:
        repository = Repository(self.wikis / slug)
        repository.commit(pages)
        return repository

    def find(self) -> Iterable[Finding]:
        return [Finding(path.name, path) for path in sorted(self.wikis.iterdir()) if (path / ".git").exists()]

    def keeper(
        self, *, workers: int = 1, share: float = 0.1, interval: float = 0.1, discover: float = 0.1, start: bool = True
    ) -> Keeper:
        pace = Pace(workers, share, discover, lambda _: interval)
        keeper = Keeper(self.service, pace, self.find)
        self.keepers.append(keeper)
        if start:
            keeper.start()
        return keeper

    def id(self, slug: str) -> str:
        return self.service.registry.get(slug).id

    def registered(self, *slugs: str) -> list[str]:
        """Register repositories before any keeper finds them; their ids."""
        self.service.registry.add_many([(slug, str(self.wikis / slug), {}) for slug in slugs])
        return [self.id(slug) for slug in slugs]

    def search(self, slug: str, query: str) -> Answer:
        return self.service.wiki(slug).search(Request(query))

    def finds(self, slug: str, query: str, path: str) -> bool:
        """Whether a search has this page; not while there is nothing to search."""
        try:
            return path in [hit.path for hit in self.search(slug, query).hits]
        except (WikiNotFound, IndexMissing, NothingIndexed):
            return False

    def close(self) -> None:
        for keeper in self.keepers:
            assert keeper.stop(30)
        self.service.close()


def many(count: int, word: str) -> dict[str, str | bytes | None]:
    """Pages of a large wiki, each with the word and a number."""
    return {f"{word}-{number:04}.md": f"# {word} {number}\n\n{word} text {number}\n" for number in range(count)}


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, for so long at most."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        Event().wait(0.005)
