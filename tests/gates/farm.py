"""A service over a data directory as the product wires it, with a stand-in for the model and caches that are in use."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from wikiholt.handle import Parts, Workshop
from wikiholt.model import Floats, Wiki
from wikiholt.pages import Pipeline
from wikiholt.ports import VectorCache, WikiIndex, WordCache
from wikiholt.registry import Registry
from wikiholt.service import Service
from wikiholt.sources.git import GitSource
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder
from wikiholt.vectors.exact import ExactCache
from wikiholt.words.cache import PostingsCache


class SlowEmbedder(FakeEmbedder):
    """Takes its time for every batch, so that whatever is to happen in the middle of a sync does."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name=name)
        self._seconds = seconds

    def passages(self, texts: Sequence[str]) -> Floats:
        time.sleep(self._seconds)
        return super().passages(texts)


def open_farm(
    data: Path,
    *,
    model: str = "fake",
    seconds: float = 0.0,
    background: bool = False,
    target_tokens: Callable[[Wiki], int] = lambda _: 200,
    lock_timeout: float = 30.0,
) -> Service:
    """The service of this data directory. Every wiki, however small, has both of its caches."""
    store = SqliteStore(data / "wikis")
    embedder = SlowEmbedder(model, seconds)

    def vectors(index: WikiIndex, wiki_id: str) -> VectorCache:
        return ExactCache(index, store.directory(wiki_id), background=background)

    def words(index: WikiIndex, wiki_id: str) -> WordCache:
        return PostingsCache(index, store.directory(wiki_id), background=background)

    def parts(wiki: Wiki) -> Parts:
        pipeline = Pipeline(target_tokens=target_tokens(wiki), max_bytes=200_000)
        return Parts(GitSource(Path(wiki.source)), pipeline, "/w/{path}")

    shop = Workshop(store, lambda: embedder, vectors, words, lock_timeout)
    return Service(Registry(data / "registry.sqlite"), shop, parts)


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, byte for byte."""
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
