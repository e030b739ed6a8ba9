"""A small wiki whose searches are reranked by the reranker of the test."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support.git_repository import Repository
from wikiholt.domain.index import CosineScale
from wikiholt.domain.protocols import Reranker
from wikiholt.domain.search import SearchResult
from wikiholt.domain.wiki import Wiki
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeEmbedder, FakeReranker
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig

WIKI_ID = "rrrrrrrrrrrrrrrrrrrr"
SUBJECTS = ("boiler", "printer", "kitchen", "garage", "archive", "garden")
PAGES: dict[str, str | bytes | None] = {
    f"{subject}/{task}.md": f"# {subject.title()} {task}\n\nHow to {task} the {subject}.\n\n## When\n\n"
    f"The {subject} needs to {task} every {number + 2} weeks, or sooner when the {subject} is in use."
    for number, subject in enumerate(SUBJECTS)
    for task in ("clean", "repair", "lock", "order", "inspect")
}


class TimedOutReranker(FakeReranker):
    """Never returns scores in time."""

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        super().score(query, texts, timeout_s)
        return None


class ReversingReranker(FakeReranker):
    """Rates the last text best. Records its calls under a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def score(self, query: str, texts: Sequence[str], timeout_s: float) -> Sequence[float] | None:
        with self._lock:
            super().score(query, texts, timeout_s)
        return [24.0 * at / len(texts) - 12 for at in range(len(texts))]


class RerankFixture:
    """An indexed wiki of thirty pages."""

    def __init__(self, directory: Path) -> None:
        self.repository = Repository(directory / "wiki")
        self.repository.commit(PAGES)
        self.store = SqliteStore(directory / "data")
        self.embedder = FakeEmbedder()
        self.open_handle().sync()

    def open_handle(
        self, reranker: Callable[[], Reranker] | None = None, scale: CosineScale | None = None
    ) -> WikiHandle:
        wiki = Wiki(WIKI_ID, "house", str(self.repository.path), datetime.now(UTC))
        parts = WikiConfig(GitSource(self.repository.path), TextPipeline(), "/wiki/{path}")
        components = Components(
            self.store,
            lambda: self.embedder,
            lambda index, wiki_id: None,
            1,
            scale=lambda _: scale or CosineScale(),
            reranking=RerankConfig(reranker, 30.0, "a reader") if reranker is not None else None,
        )
        return WikiHandle(wiki, parts, components)


def get_ranking(answer: SearchResult) -> list[tuple[str, float, str]]:
    return [(hit.path, hit.score, hit.confidence.value) for hit in answer.hits]
