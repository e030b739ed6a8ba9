"""A small wiki whose searches are reranked by whoever a test sends."""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from git_repository import Repository

from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.model import Answer, Scale, Wiki
from wikiholt.pages import Pipeline
from wikiholt.ports import Reranker
from wikiholt.search import Reranking
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder, FakeReranker
from wikiholt.vectors.exact import ExactCache

ID = "rrrrrrrrrrrrrrrrrrrr"
SUBJECTS = ("boiler", "printer", "kitchen", "garage", "archive", "garden")
PAGES: dict[str, str | bytes | None] = {
    f"{subject}/{task}.md": f"# {subject.title()} {task}\n\nHow to {task} the {subject}.\n\n## When\n\n"
    f"The {subject} needs to {task} every {number + 2} weeks, or sooner when the {subject} is in use."
    for number, subject in enumerate(SUBJECTS)
    for task in ("clean", "repair", "lock", "order", "inspect")
}


class Late(FakeReranker):
    """Never has the scores in time."""

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> Sequence[float] | None:
        super().scores(query, texts, seconds)
        return None


class Backwards(FakeReranker):
    """Finds the last of what it is given the best; knows what it was asked under a lock."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def scores(self, query: str, texts: Sequence[str], seconds: float) -> Sequence[float] | None:
        with self._lock:
            super().scores(query, texts, seconds)
        return [24.0 * at / len(texts) - 12 for at in range(len(texts))]


class House:
    """An indexed wiki of thirty pages."""

    def __init__(self, directory: Path) -> None:
        self.repository = Repository(directory / "wiki")
        self.repository.commit(PAGES)
        self.store = SqliteStore(directory / "data")
        self.embedder = FakeEmbedder()
        self.handle().sync()

    def handle(self, reader: Callable[[], Reranker] | None = None, scale: Scale | None = None) -> WikiHandle:
        wiki = Wiki(ID, "house", str(self.repository.path), datetime.now(UTC))
        parts = Parts(GitSource(self.repository.path), Pipeline(), "/wiki/{path}")
        shop = Workshop(
            self.store,
            lambda: self.embedder,
            lambda index, wiki_id: ExactCache(index, self.store.directory(wiki_id), background=False),
            lambda index, wiki_id: None,
            1,
            scale=lambda _: scale or Scale(),
            reranking=Reranking(reader, 30.0, "a reader") if reader is not None else None,
        )
        return WikiHandle(wiki, parts, shop)


def told(answer: Answer) -> list[tuple[str, float, str]]:
    return [(hit.path, hit.score, hit.confidence.value) for hit in answer.hits]
