"""The generation that answers: an open index with its caches, searched with the model it was built with."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from wikiholt.domain.index import CosineScale, Recipe
from wikiholt.domain.protocols import Embedder, KeywordCache, Lexicon, ModelInfo, Source, VectorCache, VectorEngine
from wikiholt.domain.storage_protocols import DatabaseAdmin, IndexStore, WikiIndex
from wikiholt.errors import ModelError, ModelMismatch
from wikiholt.indexing.index_backups import BackupPolicy
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.search.hits import HitBuilder
from wikiholt.search.reranking import RerankConfig
from wikiholt.search.searcher import Searcher
from wikiholt.wikis.query_log import QueryLogWriter

LexiconGetter = Callable[[], Lexicon | None]
"""Gives the terms of one index as it is now; None where they cannot be had. Never raises."""

_GROWTH_MARGIN_PAGES = 200
"""Pages by which any wiki may grow before its caches are chosen anew."""


@dataclass(frozen=True, slots=True)
class WikiConfig:
    """What a wiki's settings make of it."""

    source: Source
    pipeline: TextPipeline
    url: str
    check_head: bool = True
    log_queries: bool = False
    """Whether searches are written down."""


def _raise_model_missing(recipe: Recipe) -> Embedder:
    raise ModelMismatch(
        f"the index was built with {recipe.fingerprint}, which is not the model that is set",
        hint="run `wikiholt sync` to build it with the model that is set now",
    )


def _get_no_lexicon(_: WikiIndex, __: KeywordCache | None) -> LexiconGetter:
    return lambda: None


@dataclass(frozen=True, slots=True)
class Components:
    """What all wikis of a process share: tools and weights, never data."""

    store: IndexStore
    embedder: Callable[[], Embedder]
    vector_cache: Callable[[WikiIndex, str], VectorCache]
    keyword_cache: Callable[[WikiIndex, str], KeywordCache | None]
    lock_timeout: float
    backup_policy: BackupPolicy = field(default_factory=BackupPolicy)
    previous_model: Callable[[Recipe], Embedder] = _raise_model_missing
    """A model that is set no more, for an index that was built with it; kept loaded while somebody holds it."""
    identity: Callable[[], ModelInfo] | None = None
    """What the embedder is, told without loading it; where None, it is loaded."""
    scale: Callable[[Recipe], CosineScale] = lambda _: CosineScale()
    """What the cosines of an index's model mean, told without loading it; never raises."""
    reranking: RerankConfig | None = None
    """Who reads the best pages again, where that is set."""
    lexicon: Callable[[WikiIndex, KeywordCache | None], LexiconGetter] = _get_no_lexicon
    """The terms of an index, for whoever looks for a word that is lacking."""
    vector_engine: VectorEngine | None = None
    """What vector caches lean on, where they are more than files."""
    databases: DatabaseAdmin | None = None
    """What the store stands on, where that is more than files."""
    query_log_writer: QueryLogWriter | None = None
    """Writes searches down, for wikis that want it; None where none can be."""


class LiveIndex:
    """An open generation with its caches; closed when it is retired and the last search in it has ended."""

    def __init__(self, wiki_id: str, config: WikiConfig, components: Components) -> None:
        self.index = components.store.open(wiki_id)
        self.generation = self.index.generation
        state = self.index.get_state()
        self._recipe = state.recipe
        self._initial_pages = state.pages
        self._components = components
        self._previous_model: Embedder | None = None
        self._vectors = components.vector_cache(self.index, wiki_id)
        self._keywords = components.keyword_cache(self.index, wiki_id)
        # Its words were analysed by its own pipeline; one this version has no more was most likely of that language.
        language = (TextPipeline.from_recipe(state.recipe) or config.pipeline).language
        self.searcher = Searcher(
            self.index,
            self._vectors,
            self._keywords,
            self._get_embedder,
            get_head=config.source.get_last_known_head if config.check_head else None,
            hit_builder=HitBuilder(self.index, config.url, language),
            language=language,
            get_lexicon=components.lexicon(self.index, self._keywords),
            scale=components.scale(state.recipe),
            rerank_config=components.reranking,
        )
        self._users = 0
        self._closing = False
        self._lock = Lock()

    def _get_embedder(self) -> Embedder:
        """The model of this generation: today's, or as long as this generation serves the one it was built with."""
        try:
            today = self._components.embedder()
        except ModelError as error:
            with suppress(ModelError):
                self._previous_model = self._previous_model or self._components.previous_model(self._recipe)
            if self._previous_model is None:
                raise error from None
            return self._previous_model
        if today.fingerprint == self._recipe.fingerprint:
            self._previous_model = None
            return today
        if self._previous_model is None:
            self._previous_model = self._components.previous_model(self._recipe)
        return self._previous_model

    def refresh(self) -> None:
        self._vectors.refresh()
        if self._keywords is not None:
            self._keywords.refresh()

    def verify(self) -> None:
        """Read every byte of the caches; a damaged one is dropped, and made again from the index."""
        for cache in (self._vectors, self._keywords):
            if cache is not None:
                try:
                    cache.verify()
                except Exception:  # noqa: BLE001 - a cache may fail in any way; it has said so in the log
                    cache.refresh()

    def has_outgrown_caches(self) -> bool:
        """Whether the wiki has grown so much since that other kinds of cache may suit it."""
        return self.searcher.page_count > 2 * self._initial_pages + _GROWTH_MARGIN_PAGES

    def wait_idle(self, timeout: float) -> None:
        for cache in (self._vectors, self._keywords):
            if cache is not None and cache.wait_idle(timeout):
                cache.refresh()

    def acquire(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._closing and not self._users
        if last:
            self._close()

    def close_when_idle(self) -> None:
        with self._lock:
            self._closing = True
            idle = not self._users
        if idle:
            self._close()

    def _close(self) -> None:
        self._vectors.close()
        if self._keywords is not None:
            self._keywords.close()
        self.index.close()
