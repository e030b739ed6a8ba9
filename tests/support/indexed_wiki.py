"""A wiki to read and write in tests: a real repository, a real index, and a handle on both."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.support.git_repository import Repository
from wikiholt.api.models import get_scale
from wikiholt.domain.git import Author
from wikiholt.domain.page import PageGraph
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.wiki import Wiki
from wikiholt.git.source import GitSource
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.text.page_names import PAGE_EXTENSIONS
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig

WIKI_ID = "cccccccccccccccccccc"
ADA = Author("Ada", "ada@example.org")
PageFiles = dict[str, str | bytes | None]

HOME = (
    "---\ntitle: Home\ntags: [start, Garden]\ncategory: Guide\n---\n"
    "Welcome. See [[compost]] and [tools](tools/spade.md#care).\n"
)


COMPOST = "# Compost\n\nBack to [home](/home).\n"


SPADE = "---\ntags: garden\ncategory: guide\n---\n# Spade\n\n## Care\n\nOil the handle. ![a spade](spade.png)\n"


class IndexedWiki:
    """A wiki of these pages; `sync` brings its index to HEAD."""

    def __init__(
        self,
        directory: Path,
        pages: PageFiles | None = None,
        embedder: Callable[[], Embedder] | None = None,
        pipeline: TextPipeline | None = None,
        extensions: Sequence[str] = PAGE_EXTENSIONS,
    ) -> None:
        self.repository = Repository(directory / "wiki")
        self.source = GitSource(self.repository.path, extensions=extensions)
        self.store = SqliteStore(directory / "data")
        fake = FakeEmbedder()
        shop = Components(
            self.store,
            embedder or (lambda: fake),
            lambda index, wiki_id: None,
            5,
            scale=get_scale,
        )
        wiki = Wiki(WIKI_ID, "notes", str(self.repository.path), datetime.now(UTC))
        self.handle = WikiHandle(wiki, WikiConfig(self.source, pipeline or TextPipeline(), "/{path}"), shop)
        self.pages = self.handle.pages
        if pages:
            self.repository.commit(pages)

    def sync(self) -> "IndexedWiki":
        self.handle.sync()
        return self

    def read_file(self, name: str) -> str:
        """What a file holds at HEAD."""
        blob = self.repository.run_git("cat-file", "blob", f"HEAD:{name}")
        return blob.decode()

    def list_files(self) -> list[str]:
        return self.repository.run_git("ls-tree", "-r", "--name-only", "-z", "HEAD").decode().strip("\0").split("\0")

    def build_graph(self) -> PageGraph:
        self.sync()
        return self.pages.build_graph()

    def close(self) -> None:
        self.handle.close()


def assert_unchanged(wiki: IndexedWiki, head: str) -> None:
    """Nothing was committed and no file was left behind."""
    assert wiki.repository.get_head() == head, "a write that was refused must not commit"
    assert wiki.repository.run_git("status", "--porcelain") == b""
