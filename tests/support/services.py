"""A service over a data directory as the product wires it, with a stand-in for the model and caches that are in use."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from wikiholt import models
from wikiholt.api import bootstrap
from wikiholt.api.backends import open_backend
from wikiholt.api.settings.definitions import Settings
from wikiholt.api.settings.settings_loader import load_settings
from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import KeywordCache
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.folder.source import DirectorySource
from wikiholt.git.source import GitSource
from wikiholt.index.keywords.keyword_cache import FileKeywordCache
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.store import SqliteStore
from wikiholt.index.sqlite.vectors import CodesChoice, choose_quantized
from wikiholt.search.reranking import RerankConfig
from wikiholt.testing import FakeEmbedder, FakeReranker
from wikiholt.wikis.live_index import Components, WikiConfig
from wikiholt.wikis.registry import Registry
from wikiholt.wikis.service import WikiService


class SlowEmbedder(FakeEmbedder):
    """Takes its time for every batch, so that whatever is to happen in the middle of a sync does."""

    def __init__(self, name: str, seconds: float) -> None:
        super().__init__(name=name)
        self._seconds = seconds

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        time.sleep(self._seconds)
        return super().embed_passages(texts)


_SETTINGS = {"page.max_bytes": 200_000, "remote.schemes": "file", "remote.allow_private": True, "remote.timeout": 60}
_FAST_SETTINGS = {"sync.interval": 1, "sync.slice": 1, "discover.interval": 1, "backup.interval": 3600, "serve.port": 0}
FAST_SERVE_SETTINGS = {name: str(value) for name, value in (_SETTINGS | _FAST_SETTINGS).items()}
"""Settings for a `wikiholt serve` that is in a hurry."""


def install_fake_model(model: str, seconds: float) -> None:
    """Let this process load a stand-in wherever it would load a model, and cache words however few the pages are."""
    models.load_embedder = lambda name, **_: SlowEmbedder(name, seconds)
    models.identify_model = lambda name, _: SlowEmbedder(name, 0.0)
    bootstrap.open_backend = lambda settings, backups: replace(
        open_backend(settings, backups), keyword_cache_min_pages=0
    )


def build_test_service(data: Path, model: str = "fake", seconds: float = 0.0) -> WikiService:
    """The service of this data directory in the product's own wiring, all but the model."""
    install_fake_model(model, seconds)
    return bootstrap.build_service(load_test_settings(data, model))


def load_test_settings(data: Path, model: str) -> Settings:
    return load_settings(data, None, {}, {**_SETTINGS, "model": model})


def make_cached_service(
    data: Path,
    *,
    model: str = "fake",
    seconds: float = 0.0,
    background: bool = False,
    target_tokens: Callable[[Wiki], int] = lambda _: 200,
    lock_timeout_s: float = 30.0,
    choose_codes: CodesChoice = choose_quantized,
) -> WikiService:
    """The service of this data directory. Every wiki, however small, has a keyword cache."""
    store = SqliteStore(data / "wikis", choose_codes)
    embedder = SlowEmbedder(model, seconds)

    def words(index: WikiIndex, wiki_id: str) -> KeywordCache:
        return FileKeywordCache(index, store.get_directory(wiki_id), background=background)

    def parts(wiki: Wiki) -> WikiConfig:
        pipeline = TextPipeline(target_tokens=target_tokens(wiki), max_bytes=200_000)
        path = Path(wiki.source)
        mirror = store.get_directory(wiki.id) if wiki.id else None
        source = DirectorySource(path, mirror) if wiki.is_directory else GitSource(path)
        return WikiConfig(source, pipeline, "/w/{path}")

    reranking = RerankConfig(FakeReranker, 60.0)
    shop = Components(store, lambda: embedder, words, lock_timeout_s, reranking=reranking)
    return WikiService(Registry(data / "registry.sqlite"), shop, parts)


def read_all_files(directory: Path) -> dict[str, bytes]:
    """Every file below a directory, byte for byte."""
    return {str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()}
