"""The published generation of a wiki: an open index with its caches, searched with the model it was built with."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

from wikiholt.domain.index import CosineScale, Recipe
from wikiholt.domain.protocols import Embedder, KeywordCache, Lexicon, ModelInfo, Source, VectorCache
from wikiholt.domain.storage_protocols import DatabaseAdmin, IndexStore, WikiIndex
from wikiholt.domain.wiki import Wiki
from wikiholt.errors import InvalidQuery, ModelError, ModelMismatch
from wikiholt.free_memory import release_free_memory
from wikiholt.index.backup_directory import BackupPolicy
from wikiholt.index.pending_pages import read_seconds_left, record_wanted
from wikiholt.index.pipeline import TextPipeline
from wikiholt.index.sqlite.index import SqliteIndex
from wikiholt.search.hits import HitBuilder
from wikiholt.search.query import StartedQuery
from wikiholt.search.request import IndexVersion, SearchRequest
from wikiholt.search.reranking import RerankConfig
from wikiholt.search.searcher import Searcher
from wikiholt.search.sort_order import BoostRule
from wikiholt.wikis.pages.indexed_pages import IndexedPages
from wikiholt.wikis.query_log import QueryLogWriter

if TYPE_CHECKING:  # few installations use them
    from wikiholt.index.chroma.engine import ChromaEngine
    from wikiholt.index.postgres.local_copy import LocalCopy
    from wikiholt.search.answer_writer import AnswerWriter

LexiconGetter = Callable[[], Lexicon | None]
"""Returns the current terms of one index, or None if they are unavailable. Never raises."""

_GROWTH_MARGIN_PAGES = 200
"""Pages that any wiki may gain before its caches are chosen again."""


@dataclass(frozen=True, slots=True)
class WikiConfig:
    """What a wiki's settings configure."""

    source: Source
    pipeline: TextPipeline
    url: str
    check_head: bool = True
    log_queries: bool = False
    """Whether searches are recorded."""
    boost_rules: tuple[BoostRule, ...] = ()
    synonym_rules: tuple[str, ...] = ()
    writes_answers: bool = True
    """Whether the language model, if there is one, gets passages of this wiki."""


def _raise_model_missing(recipe: Recipe) -> Embedder:
    raise ModelMismatch(
        f"the index was built with {recipe.fingerprint}, which is not the configured model",
        hint="run `wikiholt sync` to rebuild it with the configured model",
    )


def _get_no_lexicon(_: WikiIndex, __: KeywordCache | None) -> LexiconGetter:
    return lambda: None


class SearchLoad:
    """The searches that run or wait in a process, of interfaces that count them. Safe to use from many threads."""

    def __init__(self, max_threads: int = 1) -> None:
        """`max_threads` is how many searches may use a second thread."""
        self._max_threads = max_threads
        self._count = 0
        self._lock = Lock()

    @contextmanager
    def count_search(self) -> Iterator[None]:
        """Count a search until the end of the block."""
        with self._lock:
            self._count += 1
        try:
            yield
        finally:
            with self._lock:
                self._count -= 1

    @property
    def allows_second_thread(self) -> bool:
        """Whether a search gains by a second thread. If many searches run, none has more than a core."""
        return self._count <= self._max_threads


@dataclass(frozen=True, slots=True)
class ViewLimits:
    """How many past commits of a wiki may have an index, and their bytes; none mean that the past is not searched."""

    max_views: int = 5
    max_bytes: int = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Components:
    """What all wikis of a process share: tools and models, never data."""

    store: IndexStore
    embedder: Callable[[], Embedder]
    keyword_cache: Callable[[WikiIndex, str], KeywordCache | None]
    lock_timeout_s: float
    backup_policy: BackupPolicy = field(default_factory=BackupPolicy)
    previous_model: Callable[[Recipe], Embedder] = _raise_model_missing
    """Loads the previous model of an index. It stays loaded while it is in use."""
    identity: Callable[[], ModelInfo] | None = None
    """Describes the embedder without loading it. If None, the embedder is loaded."""
    scale: Callable[[Recipe], CosineScale] = lambda _: CosineScale()
    """The cosine scale of an index's model, without loading the model. Never raises."""
    reranking: RerankConfig | None = None
    """The reranker, if one is configured."""
    answer_writer: "AnswerWriter | None" = None
    """The language model that answers, if one is configured."""
    lexicon: Callable[[WikiIndex, KeywordCache | None], LexiconGetter] = _get_no_lexicon
    """The terms of an index, for spelling correction and related words."""
    vector_engine: "ChromaEngine | None" = None
    """The engine of the vector caches, if there is one."""
    databases: DatabaseAdmin | None = None
    """Administration of the store's databases, if it uses any."""
    open_copy: Callable[[WikiIndex], "LocalCopy | None"] = lambda _: None
    """Opens this node's copy of an index in a database; None if the index itself is searched."""
    query_log_writer: QueryLogWriter | None = None
    """Records searches of wikis that enable it. None if nothing can be recorded."""
    search_load: SearchLoad = field(default_factory=SearchLoad)
    view_limits: ViewLimits = field(default_factory=ViewLimits)
    release_memory: Callable[[], None] = release_free_memory
    """Releases memory that is not in use, such as after a sync."""


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The published generation and HEAD as one request has read them."""

    live_index: "LiveIndex"
    version: IndexVersion

    @property
    def pages(self) -> IndexedPages:
        """The pages as this generation has them."""
        return IndexedPages(lambda: nullcontext(self.live_index.index))


class LiveIndex:
    """An open generation with its caches. Closed after `close_when_idle`, when the last search has ended."""

    def __init__(self, wiki: Wiki, config: WikiConfig, components: Components) -> None:
        self.index = components.store.open(wiki.id)
        self.generation = self.index.generation
        state = self.index.get_state()
        self._recipe = state.recipe
        self._initial_pages = state.pages
        self._components = components
        self._previous_model: Embedder | None = None
        self._wiki = wiki
        self._config = config
        self._searcher, self._caches = self._make_searcher(self.index)
        self._copy = components.open_copy(self.index)
        self._copy_searcher: tuple[WikiIndex, Searcher, list[VectorCache | KeywordCache]] | None = None
        self._old_caches: list[VectorCache | KeywordCache] = []
        """The caches of the copy before the last one, which searches may still use."""
        self._users = 0
        self._closing = False
        self._lock = Lock()

    @property
    def searcher(self) -> Searcher:
        """The searcher of this node's copy if it is current, else of the index itself."""
        copy = self._copy.get_current() if self._copy is not None else None
        if copy is None:
            return self._searcher
        retired = []
        with self._lock:
            if self._copy_searcher is None or self._copy_searcher[0] is not copy:
                retired, self._old_caches = self._old_caches, self._copy_searcher[2] if self._copy_searcher else []
                self._copy_searcher = (copy, *self._make_searcher(copy))
            searcher = self._copy_searcher[1]
        for cache in retired:
            cache.close()
        return searcher

    def _make_searcher(self, index: WikiIndex) -> tuple[Searcher, list[VectorCache | KeywordCache]]:
        components, config = self._components, self._config
        vectors = self._open_vectors(index)
        keywords = components.keyword_cache(index, self._wiki.id)
        # Words were analysed by the index's own pipeline. If it is no longer supported, assume the same language.
        pipeline = TextPipeline.from_recipe(self._recipe) or config.pipeline
        language = pipeline.language
        searcher = Searcher(
            index,
            vectors,
            keywords,
            self._get_embedder,
            get_head=config.source.get_last_known_head if config.check_head else None,
            hit_builder=HitBuilder(config.url, language, pipeline.dialect),
            language=language,
            get_lexicon=components.lexicon(index, keywords),
            scale=components.scale(self._recipe),
            rerank_config=components.reranking,
            boost_rules=config.boost_rules,
            synonym_rules=config.synonym_rules,
            get_seconds_left=partial(read_seconds_left, components.store, self._wiki.id),
            on_wanted=partial(record_wanted, components.store, self._wiki.id),
        )
        return searcher, [cache for cache in (vectors, keywords) if cache is not None]

    def _open_vectors(self, index: WikiIndex) -> VectorCache | None:
        """What finds the nearest chunks instead of the index; None if the index does."""
        engine, store, wiki = self._components.vector_engine, self._components.store, self._wiki
        if engine is None or not isinstance(index, SqliteIndex):
            return None
        generation, directory = index.generation, store.get_directory(wiki.id)
        return engine.open_searcher(
            index, directory, wiki.id, wiki.slug, lambda: store.get_published(wiki.id) == generation
        )

    def _get_embedder(self) -> Embedder:
        """The model of this generation: the configured one, or else the one it was built with."""
        try:
            current = self._components.embedder()
        except ModelError as error:
            with suppress(ModelError):
                self._previous_model = self._previous_model or self._components.previous_model(self._recipe)
            if self._previous_model is None:
                raise error from None
            return self._previous_model
        if current.fingerprint == self._recipe.fingerprint:
            self._previous_model = None
            return current
        if self._previous_model is None:
            self._previous_model = self._components.previous_model(self._recipe)
        return self._previous_model

    def start_query(self, request: SearchRequest) -> StartedQuery | None:
        """Start to embed the query before the published generation is read. None if that cannot be done now."""
        if not self._components.search_load.allows_second_thread:
            return None
        with suppress(InvalidQuery):  # the search raises it, unless there is nothing to search
            return self._searcher.start(request)
        return None

    def refresh(self) -> None:
        for cache in self._list_caches():
            cache.refresh()

    def verify(self) -> None:
        """Check the caches completely. A damaged one is rebuilt from the index."""
        for cache in self._list_caches():
            try:
                cache.verify()
            except Exception:  # noqa: BLE001 - a cache may fail in any way, and has logged it
                cache.refresh()

    def has_outgrown_caches(self) -> bool:
        """Whether the wiki has outgrown the kinds of cache that were chosen when it was opened."""
        copy_searcher = self._copy_searcher[1] if self._copy_searcher is not None else self._searcher
        return max(self._searcher.page_count, copy_searcher.page_count) > 2 * self._initial_pages + _GROWTH_MARGIN_PAGES

    def wait_idle(self, timeout_s: float) -> None:
        for cache in self._list_caches():
            if cache.wait_idle(timeout_s):
                cache.refresh()

    def _list_caches(self) -> "list[LocalCopy | VectorCache | KeywordCache]":
        copied = [*self._old_caches, *(self._copy_searcher[2] if self._copy_searcher else ())]
        return [*([self._copy] if self._copy is not None else []), *self._caches, *copied]

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
        for cache in reversed(self._list_caches()):
            cache.close()
        self.index.close()
