"""A service over a data directory as the product wires it, with a stand-in for the model and caches that are in use."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from wikiholt import embedding, wiring
from wikiholt.grounds import ground_of
from wikiholt.handle import Parts, Workshop
from wikiholt.model import Floats, Wiki
from wikiholt.pages import Pipeline
from wikiholt.ports import VectorCache, WikiIndex, WordCache
from wikiholt.registry import Registry
from wikiholt.search import Reranking
from wikiholt.service import Service
from wikiholt.settings import Settings, load
from wikiholt.sources.git import GitSource
from wikiholt.sources.identity import GitRepositories
from wikiholt.stores.sqlite.store import SqliteStore
from wikiholt.testing import FakeEmbedder, FakeReranker
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

    def _vector(self, text: str) -> Floats:
        """The same vector as ever, with the directions of words remembered."""
        words = [_direction(word, self.dimensions) for word in _words(text)]
        total = np.full(self.dimensions, 1e-3, np.float32)
        for word in words:
            total += word
        return np.asarray(total / np.linalg.norm(total), np.float32)


def _words(text: str) -> list[str]:
    low = text.lower()
    return [low[start:end] for start, end in FakeEmbedder().token_spans(low)]


@cache
def _direction(word: str, dimensions: int) -> Floats:
    seed = int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
    return np.random.default_rng(seed).standard_normal(dimensions).astype(np.float32)


REAL = "real"
"""In the place of a stand-in's name: the model the product comes with."""
_SETTINGS = {"page.max_bytes": 200_000, "remote.schemes": "file", "remote.allow_private": True, "remote.timeout": 60}
_QUICK = {"sync.interval": 1, "sync.slice": 1, "discover.interval": 1, "backup.interval": 3600, "serve.port": 0}
QUICK = {name: str(value) for name, value in (_SETTINGS | _QUICK).items()}
"""Settings for a `wikiholt serve` that is in a hurry."""


def stand_in(model: str, seconds: float) -> None:
    """Let this process load a stand-in wherever it would load a model, and cache words however few the pages are."""
    if model != REAL:
        embedding.load = lambda name, **_: SlowEmbedder(name, seconds)
        embedding.identify = lambda name, _: SlowEmbedder(name, 0.0)
    wiring.ground_of = lambda settings, backups: replace(ground_of(settings, backups), few_pages=0)


def product(data: Path, model: str = "fake", seconds: float = 0.0) -> Service:
    """The service of this data directory in the product's own wiring, all but the model."""
    stand_in(model, seconds)
    return wiring.build(settings(data, model))


def settings(data: Path, model: str) -> Settings:
    return load(data, None, {}, _SETTINGS if model == REAL else {**_SETTINGS, "model": model})


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

    reranking = Reranking(FakeReranker, 60.0)
    shop = Workshop(store, lambda: embedder, vectors, words, lock_timeout, reranking=reranking)
    return Service(Registry(data / "registry.sqlite"), shop, parts, repositories=GitRepositories())


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, byte for byte."""
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
