"""A wiki to read and write in tests: a real repository, a real index, and a handle on both."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from git_repository import Repository

from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.model import Author, PageGraph, Wiki
from wikiholt.pages import Pipeline
from wikiholt.ports import Embedder
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.vectors.exact import ExactCache

ID = "cccccccccccccccccccc"
ADA = Author("Ada", "ada@example.org")
Pages = dict[str, str | bytes | None]

HOME = (
    "---\ntitle: Home\ntags: [start, Garden]\ncategory: Guide\n---\n"
    "Welcome. See [[compost]] and [tools](tools/spade.md#care).\n"
)


COMPOST = "# Compost\n\nBack to [home](/home).\n"


SPADE = "---\ntags: garden\ncategory: guide\n---\n# Spade\n\n## Care\n\nOil the handle. ![a spade](spade.png)\n"


class Notebook:
    """A wiki of these pages; `sync` brings its index to HEAD."""

    def __init__(
        self,
        directory: Path,
        pages: Pages | None = None,
        embedder: Callable[[], Embedder] | None = None,
        pipeline: Pipeline | None = None,
    ) -> None:
        self.repository = Repository(directory / "wiki")
        self.source = GitSource(self.repository.path)
        self.store = SqliteStore(directory / "data")
        fake = FakeEmbedder()
        shop = Workshop(
            self.store,
            embedder or (lambda: fake),
            lambda index, wiki_id: ExactCache(index, self.store.directory(wiki_id), background=False),
            lambda index, wiki_id: None,
            5,
        )
        wiki = Wiki(ID, "notes", str(self.repository.path), datetime.now(UTC))
        self.handle = WikiHandle(wiki, Parts(self.source, pipeline or Pipeline(), "/{path}"), shop)
        self.contents = self.handle.contents
        if pages:
            self.repository.commit(pages)

    def sync(self) -> "Notebook":
        self.handle.sync()
        return self

    def file(self, name: str) -> str:
        """What a file holds at HEAD."""
        blob = self.repository.git("cat-file", "blob", f"HEAD:{name}")
        return blob.decode()

    def files(self) -> list[str]:
        return self.repository.git("ls-tree", "-r", "--name-only", "-z", "HEAD").decode().strip("\0").split("\0")

    def graph(self) -> PageGraph:
        self.sync()
        return self.contents.graph()

    def close(self) -> None:
        self.handle.close()


def unchanged(notes: Notebook, head: str) -> None:
    """Nothing was committed since and nothing lies about."""
    assert notes.repository.head() == head, "a write that was refused must not commit"
    assert notes.repository.git("status", "--porcelain") == b""
