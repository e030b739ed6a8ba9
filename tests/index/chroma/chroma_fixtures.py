"""A store with pages, its own Chroma, and conditions to wait for."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wikiholt.domain.index import FloatArray, IndexChange, Recipe, VectorHits
from wikiholt.index.chroma.engine import ChromaConfig, ChromaEngine
from wikiholt.index.chroma.searcher import ChromaSearcher
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.testing.fakes import FakeEmbedder, make_entry

WIKI_ID, OTHER_WIKI_ID = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"
EMBEDDER = FakeEmbedder()


class ChromaFixture:
    """A data directory with wikis, and Chroma beside it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = SqliteStore(place / "wikis")
        self.path = place / "chroma"
        self.open_indexes: dict[str, SqliteIndex] = {}

    def create_index(self, wiki_id: str, pages: int = 35, word: str = "river") -> SqliteIndex:
        """An index of `pages` pages with two chunks each."""
        index = self.store.create(wiki_id, Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "text"))
        texts = [(f"p{i}.md", [f"{word} {i} stone{i % 7}", f"bridge {i} {word}{i % 5} wood"]) for i in range(pages)]
        index.apply(IndexChange(pages=tuple(make_entry(file, text, EMBEDDER, tags=["a", "b"]) for file, text in texts)))
        self.open_indexes[wiki_id] = index
        return index

    @contextmanager
    def open_engine(self, **options: object) -> Iterator[ChromaEngine]:
        place = {
            "path": self.path,
            "timeout_s": 60.0,
            "read_timeout_s": 30.0,
            "write_timeout_s": 60.0,
            **options,
        }
        engine = ChromaEngine(ChromaConfig(**place), self.place / "chroma-owner", lambda: list(self.open_indexes))  # type: ignore[arg-type]
        try:
            yield engine
        finally:
            engine.close()

    def open_cache(self, engine: ChromaEngine, wiki_id: str = WIKI_ID, slug: str = "one") -> ChromaSearcher:
        index, directory = self.open_indexes[wiki_id], self.store.get_directory(wiki_id)
        return engine.open_searcher(index, directory, wiki_id, slug)

    def get_child_pid(self, engine: ChromaEngine) -> int:
        """The process that hosts Chroma."""
        assert engine._server is not None
        process = engine._server._process
        assert process is not None
        return int(process.pid)

    def close(self) -> None:
        for index in self.open_indexes.values():
            index.close()


QUERY = EMBEDDER.embed_query("the old river bridge stone3")


def is_helped_by_chroma(cache: ChromaSearcher, query: FloatArray = QUERY) -> bool:
    """Whether Chroma takes part in a search."""
    cache.refresh()
    before = cache._engine.metrics.counts["queries"]
    is_degraded = cache.search(query, 10, None).degraded
    return not is_degraded and (cache._engine.metrics.counts["queries"] > before or not cache._index.get_state().chunks)


def assert_same_as_store(
    cache: ChromaSearcher, index: SqliteIndex, limit: int = 10, query: FloatArray = QUERY
) -> VectorHits:
    """The cache gives the same answer as the store."""
    cache.refresh()
    found, expected = cache.search(query, limit, None), index.search_vectors(query, limit, None)
    np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)
    assert set(found.chunk_ids.tolist()) == set(expected.chunk_ids.tolist()) or len(set(expected.distances)) < limit
    return found


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def get_metric(engine: ChromaEngine, name: str) -> int:
    return engine.get_metrics()[name][1]
