"""A wiki of a few pages in given languages, with or without a keyword cache."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.support.git_repository import Repository
from wikiholt.domain.protocols import KeywordCache
from wikiholt.domain.search import Hit, SearchMode
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.git.source import GitSource
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.index.keywords.lexicon import LexiconProvider
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.search.request import SearchRequest
from wikiholt.testing import FakeEmbedder
from wikiholt.wikis.handle import WikiHandle
from wikiholt.wikis.live_index import Components, WikiConfig

_WIKI_ID = "llllllllllllllllllll"


class LanguageFixture:
    """One wiki on disk; `cached` gives it the keyword cache of large wikis."""

    def __init__(self, directory: Path, pages: Mapping[str, str], language: str, *, cached: bool = False) -> None:
        repository = Repository(directory / "wiki")
        repository.commit({f"{name}.md": text for name, text in pages.items()})
        store, embedder = SqliteStore(directory / "data"), FakeEmbedder()

        def words(index: WikiIndex, wiki_id: str) -> KeywordCache | None:
            return FileKeywordCache(index, store.get_directory(wiki_id), background=False) if cached else None

        wiki = Wiki(_WIKI_ID, "shelf", str(repository.path), datetime.now(UTC))
        self.handle = WikiHandle(
            wiki,
            WikiConfig(GitSource(repository.path), TextPipeline(language=language), "{path}"),
            Components(
                store,
                lambda: embedder,
                words,
                1,
                lexicon=LexiconProvider,
            ),
        )
        self.handle.sync()
        assert not self.handle.get_status().problems

    def search(self, query: str, mode: SearchMode = SearchMode.KEYWORD) -> tuple[Hit, ...]:
        answer = self.handle.search(SearchRequest(query, 20, mode))
        assert not answer.degraded
        return answer.hits

    def find_paths(self, query: str, mode: SearchMode = SearchMode.KEYWORD) -> list[str]:
        """The paths of the pages that a query finds, best first."""
        return [hit.path for hit in self.search(query, mode)]

    def get_marked_words(self, query: str, path: str) -> list[str]:
        """The words of that page's snippet that are marked."""
        (snippet,) = (hit.snippet for hit in self.search(query) if hit.path == path)
        return [snippet.text[span.start : span.end] for span in snippet.matches]
