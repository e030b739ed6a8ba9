"""A wiki of a few pages in given languages, indexed and searched as any, with or without a cache of its words."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from git_repository import Repository

from wikiholt.handle import Parts, WikiHandle, Workshop
from wikiholt.model import Hit, Mode, Wiki
from wikiholt.pages import Pipeline
from wikiholt.ports import WikiIndex, WordCache
from wikiholt.search import Request
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.vectors.exact import ExactCache
from wikiholt.words.cache import PostingsCache
from wikiholt.words.lexicon import Lexicons

_ID = "llllllllllllllllllll"


class Shelf:
    """One wiki on disk; `cached` gives it the cache that wikis over some hundred pages have."""

    def __init__(self, directory: Path, pages: Mapping[str, str], language: str, *, cached: bool = False) -> None:
        repository = Repository(directory / "wiki")
        repository.commit({f"{name}.md": text for name, text in pages.items()})
        store, embedder = SqliteStore(directory / "data"), FakeEmbedder()

        def words(index: WikiIndex, wiki_id: str) -> WordCache | None:
            return PostingsCache(index, store.directory(wiki_id), background=False) if cached else None

        wiki = Wiki(_ID, "shelf", str(repository.path), datetime.now(UTC))
        self.handle = WikiHandle(
            wiki,
            Parts(GitSource(repository.path), Pipeline(language=language), "{path}"),
            Workshop(
                store,
                lambda: embedder,
                lambda index, wiki_id: ExactCache(index, store.directory(wiki_id), background=False),
                words,
                1,
                lexicon=Lexicons,
            ),
        )
        self.handle.sync()
        assert not self.handle.status().problems

    def hits(self, query: str, mode: Mode = Mode.KEYWORD) -> tuple[Hit, ...]:
        answer = self.handle.search(Request(query, 20, mode))
        assert not answer.degraded
        return answer.hits

    def found(self, query: str, mode: Mode = Mode.KEYWORD) -> list[str]:
        """The paths of the pages that a query finds, best first."""
        return [hit.path for hit in self.hits(query, mode)]

    def marked(self, query: str, path: str) -> list[str]:
        """The words of that page's snippet that are marked."""
        (snippet,) = (hit.snippet for hit in self.hits(query) if hit.path == path)
        return [snippet.text[span.start : span.end] for span in snippet.matches]
