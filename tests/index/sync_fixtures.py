"""A repository and its index. Every sync checks that the index matches the tree at HEAD."""

from pathlib import Path

from tests.support.git_repository import Repository
from wikiholt.domain.index import SyncReport
from wikiholt.domain.search import KeywordQuery, PageFilter
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.index.sync import Syncer
from wikiholt.testing import FakeEmbedder

WIKI_ID = "dddddddddddddddddddd"


LONG_TEXT = "\n\n".join(
    f"Paragraph {i} speaks of subject{i} at some length, and then of matter{i} too." for i in range(60)
)


class SyncFixture:
    """A repository, a store, and a `sync` that checks its result."""

    def __init__(self, directory: Path) -> None:
        self.repository = Repository(directory / "wiki")
        self.store = SqliteStore(directory / "data")
        self.embedder = FakeEmbedder()
        self.pipeline = TextPipeline()
        self.source = GitSource(self.repository.path)
        self.model_and_pipeline: tuple[FakeEmbedder, TextPipeline] | None = None
        self.syncer: Syncer | None = None

    def sync(self) -> SyncReport:
        self.embedder.embedded.clear()
        # Sync with two syncers: one that remembers the last revision, and a new one that compares complete trees.
        parts = (self.embedder, self.pipeline)
        if self.syncer is None or self.model_and_pipeline != parts:
            self.model_and_pipeline, self.syncer = parts, Syncer(WIKI_ID, self.store, self.source, *parts, 0.05)
        report = self.syncer.sync()
        self.assert_converged()
        again = Syncer(WIKI_ID, self.store, self.source, *parts, 0.05).sync()
        assert (again.added, again.changed, again.deleted, again.chunks_embedded) == (0, 0, 0, 0)
        return report

    def assert_converged(self) -> None:
        """Check that the index is intact and at HEAD, and that every file in the tree is a page or a listed problem."""
        index = self.store.open(WIKI_ID)
        tree = {file: entry.blob for file, entry in self.source.read_tree(self.repository.get_head()).items()}
        problems = {problem.file: problem.blob for problem in index.get_problems()}
        assert dict(index.get_page_blobs()) | problems == tree
        assert index.get_state().revision == self.repository.get_head()
        assert index.check() == []
        index.close()

    def find_paths(self, word: str) -> set[str]:
        index = self.store.open(WIKI_ID)
        hits = index.search_keywords(KeywordQuery(terms=(word,)), 100, PageFilter())
        names = {page.path for page in index.get_pages([hit.page_id for hit in hits]).values()}
        index.close()
        return names

    def get_aliases(self) -> dict[str, tuple[str, ...]]:
        index = self.store.open(WIKI_ID)
        aliases = {page.path: page.aliases for page in index.list_pages(PageFilter(), None)[1] if page.aliases}
        index.close()
        return aliases
