"""A wiki, its store, and a way to sync it, which looks after every sync whether the index is the tree."""

from pathlib import Path

from git_repository import Repository

from wikiholt.model import Filter, SyncReport, WordQuery
from wikiholt.pages import Pipeline
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.sync import Syncer
from wikiholt.testing import FakeEmbedder

ID = "dddddddddddddddddddd"


LONG = "\n\n".join(f"Paragraph {i} speaks of subject{i} at some length, and then of matter{i} too." for i in range(60))


class Bench:
    """A wiki, its store, and a way to sync it."""

    def __init__(self, directory: Path) -> None:
        self.repository = Repository(directory / "wiki")
        self.store = SqliteStore(directory / "data")
        self.embedder = FakeEmbedder()
        self.pipeline = Pipeline()
        self.source = GitSource(self.repository.path)
        self.parts: tuple[FakeEmbedder, Pipeline] | None = None
        self.syncer: Syncer | None = None

    def sync(self) -> SyncReport:
        self.embedder.embedded.clear()
        # Two syncers take turns: one that remembers what it has seen, and one that compares whole trees.
        parts = (self.embedder, self.pipeline)
        if self.syncer is None or self.parts != parts:
            self.parts, self.syncer = parts, Syncer(ID, self.store, self.source, *parts, 0.05)
        report = self.syncer.sync()
        self.converged()
        again = Syncer(ID, self.store, self.source, *parts, 0.05).sync()
        assert (again.added, again.changed, again.deleted, again.chunks_embedded) == (0, 0, 0, 0)
        return report

    def converged(self) -> None:
        """The index is whole and equal to HEAD: every page with its blob, every other one a listed problem."""
        index = self.store.open(ID)
        tree = {file: entry.blob for file, entry in self.source.tree(self.repository.head()).items()}
        problems = {problem.file: problem.blob for problem in index.problems()}
        assert dict(index.pages()) | problems == tree
        assert index.state().revision == self.repository.head()
        assert index.check() == []
        index.close()

    def found(self, word: str) -> set[str]:
        index = self.store.open(ID)
        hits = index.words(WordQuery(terms=(word,)), 100, Filter())
        names = {page.path for page in index.stored_pages([hit.page_id for hit in hits]).values()}
        index.close()
        return names
