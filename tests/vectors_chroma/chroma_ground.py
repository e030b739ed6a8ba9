"""A truth with pages, a Chroma of its own, and what tests wait for."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from wikiholt.model import Change, Floats, Neighbours, Recipe
from wikiholt.ports import WikiIndex
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing.embedder import FakeEmbedder
from wikiholt.testing.entries import entry
from wikiholt.vectors.chroma import Chroma, ChromaCache, Place

BOUND = 100.0
ONE, OTHER = "aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb"
EMBEDDER = FakeEmbedder()


def until(holds: Callable[[], object], what: str) -> None:
    """Wait until it holds, within a bound no machine is too slow for."""
    end = time.monotonic() + BOUND
    while not holds():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.02)


class Ground:
    """A data directory with wikis, and Chroma beside it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.store = SqliteStore(place / "wikis")
        self.path = place / "chroma"
        self.open: dict[str, WikiIndex] = {}

    def wiki(self, wiki_id: str, pages: int = 35, word: str = "river") -> WikiIndex:
        """An index of so many pages of two chunks each."""
        index = self.store.create(wiki_id, Recipe(EMBEDDER.fingerprint, EMBEDDER.dimensions, "text"))
        texts = [(f"p{i}.md", [f"{word} {i} stone{i % 7}", f"bridge {i} {word}{i % 5} wood"]) for i in range(pages)]
        index.apply(Change(pages=tuple(entry(file, text, EMBEDDER, tags=["a", "b"]) for file, text in texts)))
        self.open[wiki_id] = index
        return index

    @contextmanager
    def chroma(self, **options: object) -> Iterator[Chroma]:
        place = {"path": self.path, "timeout": 60.0, "heartbeat": 30.0, "patience": 60.0, **options}
        engine = Chroma(Place(**place), self.place / "chroma-owner", lambda: list(self.open))  # type: ignore[arg-type]
        try:
            yield engine
        finally:
            engine.close()

    def cache(self, engine: Chroma, wiki_id: str = ONE, slug: str = "one") -> ChromaCache:
        return engine.cache(self.open[wiki_id], self.store.directory(wiki_id), wiki_id, slug)

    def child_pid(self, engine: Chroma) -> int:
        """The process that hosts Chroma."""
        process = engine._caretaker.host._process  # type: ignore[attr-defined]
        assert process is not None
        return int(process.pid)

    def close(self) -> None:
        for index in self.open.values():
            index.close()


QUERY = EMBEDDER.query("the old river bridge stone3")


def helped(cache: ChromaCache, query: Floats = QUERY) -> bool:
    """Whether a search is answered with Chroma's help."""
    cache.refresh()
    return not cache.search(query, 10, None).degraded


def assert_right(cache: ChromaCache, index: WikiIndex, limit: int = 10, query: Floats = QUERY) -> Neighbours:
    """The answer is that of the truth, whoever gave it."""
    cache.refresh()
    found, expected = cache.search(query, limit, None), index.nearest(query, limit, None)
    np.testing.assert_allclose(found.distances, expected.distances, atol=1e-5)
    assert set(found.chunk_ids.tolist()) == set(expected.chunk_ids.tolist()) or len(set(expected.distances)) < limit
    return found


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def figure(engine: Chroma, name: str) -> int:
    return engine.figures()[name][1]
