"""A directory of real repositories, a data directory, schedulers that use both, and a fake model."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from threading import Event, Lock

from tests.support.git_repository import Repository
from tests.support.wait import TIMEOUT_S
from wikiholt.domain.git import DiscoveredRepository
from wikiholt.domain.index import FloatArray
from wikiholt.domain.search import SearchResult
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import IndexMissing, NothingIndexed, WikiNotFound
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.request import SearchRequest
from wikiholt.sync.scheduler import Scheduler
from wikiholt.sync.wiki_records import SchedulerConfig
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.live_index import Components, WikiConfig
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService


class RecordingEmbedder(FakeEmbedder):
    """Records the order of texts, and can block texts that contain a word."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.reached = Event()
        self._blocked: dict[str, Event] = {}
        self._lock = Lock()

    def block(self, word: str) -> Event:
        """Block texts with this word until the returned event is set."""
        self._blocked[word] = Event()
        return self._blocked[word]

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        for word, gate in list(self._blocked.items()):
            if any(word in text for text in texts):
                self.reached.set()
                assert gate.wait(TIMEOUT_S)
        if self.seconds:
            Event().wait(self.seconds)
        with self._lock:
            return super().embed_passages(texts)

    def find_first(self, word: str) -> int:
        """The position of the first embedded text with this word."""
        return next(at for at, text in enumerate(self.embedded) if word in text)

    def find_last(self, word: str) -> int:
        return max(at for at, text in enumerate(self.embedded) if word in text)


class SchedulerFixture:
    """Repositories, a service and the schedulers of one test."""

    def __init__(self, directory: Path, embedder: FakeEmbedder | None = None) -> None:
        self.data = directory / "data"
        self.wikis = directory / "wikis"
        self.wikis.mkdir(parents=True, exist_ok=True)
        self.embedder = embedder or RecordingEmbedder()
        self.store = SqliteStore(self.data / "wikis")
        self.service = self.open_service()
        self.schedulers: list[Scheduler] = []

    def open_service(self) -> WikiService:
        components = Components(
            self.store,
            lambda: self.embedder,
            lambda _, __: None,
            30.0,
        )
        return WikiService(Registry(self.data / "registry.sqlite"), components, self.make_config)

    def make_config(self, wiki: Wiki) -> WikiConfig:
        return WikiConfig(GitSource(Path(wiki.source)), TextPipeline(), "{path}")

    def create_repository(self, slug: str, pages: dict[str, str | bytes | None]) -> Repository:
        repository = Repository(self.wikis / slug)
        repository.commit(pages)
        return repository

    def find_repositories(self) -> Iterable[DiscoveredRepository]:
        return [
            DiscoveredRepository(path.name, path) for path in sorted(self.wikis.iterdir()) if (path / ".git").exists()
        ]

    def make_scheduler(
        self,
        *,
        workers: int = 1,
        reindex_share: float = 0.1,
        interval: float = 0.1,
        discover_interval: float = 0.1,
        start: bool = True,
    ) -> Scheduler:
        config = SchedulerConfig(workers, reindex_share, discover_interval, lambda _: interval)
        scheduler = Scheduler(self.service, config, self.find_repositories)
        self.schedulers.append(scheduler)
        if start:
            scheduler.start()
        return scheduler

    def get_wiki_id(self, slug: str) -> str:
        return self.service.registry.get(slug).id

    def register_wikis(self, *slugs: str) -> list[str]:
        """Register repositories before a scheduler discovers them. Returns the ids of the wikis."""
        self.service.registry.add_many([(slug, str(self.wikis / slug), {}) for slug in slugs])
        return [self.get_wiki_id(slug) for slug in slugs]

    def search(self, slug: str, query: str) -> SearchResult:
        return self.service.get_handle(slug).search(SearchRequest(query))

    def can_find(self, slug: str, query: str, path: str) -> bool:
        """Whether a search finds this page. False while there is no index."""
        try:
            return path in [hit.path for hit in self.search(slug, query).hits]
        except (WikiNotFound, IndexMissing, NothingIndexed):
            return False

    def close(self) -> None:
        for scheduler in self.schedulers:
            assert scheduler.stop(TIMEOUT_S)
        self.service.close()


def make_pages(count: int, word: str) -> dict[str, str | bytes | None]:
    """Pages of a large wiki. Every page contains the word and its number."""
    return {f"{word}-{number:04}.md": f"# {word} {number}\n\n{word} text {number}\n" for number in range(count)}
