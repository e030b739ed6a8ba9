"""A small realistic wiki, searched with typing errors."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.support.git_repository import Repository
from wikiholt.domain.protocols import KeywordCache
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.git.source import GitSource
from wikiholt.index.keywords.lexicon import LexiconProvider
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig

WIKI_ID = "ssssssssssssssssssss"
PAGES: dict[str, str | bytes | None] = {
    "Kitchen.md": "---\ntags: [cleaning]\n---\n# Coffee machine\n\nDescale the coffee machine every month. "
    "The kettle is older than the house and is descaled with vinegar.",
    "Office.md": "# Printer\n\nA jam is nearly always behind the rear flap. Toner is ordered on Fridays; the "
    "printer asks for it too early. Put the boots by the door before you carry paper.",
    "Cluster.md": "# Kubernetes\n\nThe cluster runs Kubernetes. Every deployment has two replicas, and the "
    "deployments of last year are documented in the archive.",
    "Garden.md": "# Garden\n\nThe watering can stands by the compost. In October the hedgehog moves in.",
    "Böden.md": "# Fußböden\n\nDie Dielen im Flur werden geölt, die Küche hat Fliesen.",
    "Двор.md": "# Двор\n\nСобака спит у ворот, а калитка скрипит.",
    "Secret.md": "---\nsearch: false\n---\n# Payroll\n\nThe bookkeeper keeps the ledgers in the strongbox.",
}


class VocabularyEmbedder(FakeEmbedder):
    """A model that knows some words."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words

    def is_known_word(self, word: str) -> bool:
        return word in self.words


class SpellingFixture:
    """An indexed wiki and handles on it."""

    def __init__(
        self, directory: Path, pages: Mapping[str, str | bytes | None] = PAGES, pipeline: TextPipeline | None = None
    ):
        self.repository = Repository(directory / "wiki")
        self.repository.commit(dict(pages))
        self.store = SqliteStore(directory / "data")
        self.pipeline = pipeline or TextPipeline()
        self.embedder = VocabularyEmbedder("boat")
        self.open_handle().sync()

    def open_handle(
        self, words: Callable[[WikiIndex, str], KeywordCache | None] = lambda _, __: None, *, correct: bool = True
    ) -> WikiHandle:
        wiki = Wiki(WIKI_ID, "house", str(self.repository.path), datetime.now(UTC))
        parts = WikiConfig(GitSource(self.repository.path), self.pipeline, "/wiki/{path}")
        components = Components(
            self.store,
            lambda: self.embedder,
            words,
            1,
            **({"lexicon": LexiconProvider} if correct else {}),
        )
        return WikiHandle(wiki, parts, components)
