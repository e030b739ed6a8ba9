"""The generation that answers: an open index with its caches, searched with the model it was built with."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock

from wikiholt.asked import Scribe
from wikiholt.backups import BackupPlan
from wikiholt.errors import ModelError, ModelMismatch
from wikiholt.hits import HitMaker
from wikiholt.model import Recipe, Scale
from wikiholt.pages import Pipeline
from wikiholt.ports import (
    Databases,
    Embedder,
    Identity,
    Lexicon,
    Source,
    Store,
    VectorCache,
    VectorEngine,
    WikiIndex,
    WordCache,
)
from wikiholt.search import Reranking, Searcher

LexiconNow = Callable[[], Lexicon | None]
"""Gives the terms of one index as it is now; None where they cannot be had. Never raises."""

_FEW = 200
"""Pages by which any wiki may grow before its caches are chosen anew."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a wiki's settings make of it."""

    source: Source
    pipeline: Pipeline
    url: str
    check_head: bool = True
    log_queries: bool = False
    """Whether searches are written down."""


def _gone(recipe: Recipe) -> Embedder:
    raise ModelMismatch(
        f"the index was built with {recipe.fingerprint}, which is not the model that is set",
        hint="run `wikiholt sync` to build it with the model that is set now",
    )


def _no_lexicon(_: WikiIndex, __: WordCache | None) -> LexiconNow:
    return lambda: None


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all wikis of a process share: tools and weights, never data."""

    store: Store
    embedder: Callable[[], Embedder]
    vector_cache: Callable[[WikiIndex, str], VectorCache]
    word_cache: Callable[[WikiIndex, str], WordCache | None]
    lock_timeout: float
    backups: BackupPlan = field(default_factory=BackupPlan)
    former: Callable[[Recipe], Embedder] = _gone
    """A model that is set no more, for an index that was built with it; kept loaded while somebody holds it."""
    identity: Callable[[], Identity] | None = None
    """What the embedder is, told without loading it; where None, it is loaded."""
    scale: Callable[[Recipe], Scale] = lambda _: Scale()
    """What the cosines of an index's model mean, told without loading it; never raises."""
    reranking: Reranking | None = None
    """Who reads the best pages again, where that is set."""
    lexicon: Callable[[WikiIndex, WordCache | None], LexiconNow] = _no_lexicon
    """The terms of an index, for whoever looks for a word that is lacking."""
    engine: VectorEngine | None = None
    """What vector caches lean on, where they are more than files."""
    databases: Databases | None = None
    """What the store stands on, where that is more than files."""
    scribe: Scribe | None = None
    """Writes searches down, for wikis that want it; None where none can be."""


class Serving:
    """An open generation with its caches; closed when it is retired and the last search in it has ended."""

    def __init__(self, wiki_id: str, parts: Parts, shop: Workshop) -> None:
        self.index = shop.store.open(wiki_id)
        self.generation = self.index.generation
        state = self.index.state()
        self._recipe = state.recipe
        self._pages_then = state.pages
        self._shop = shop
        self._former: Embedder | None = None
        self._vectors = shop.vector_cache(self.index, wiki_id)
        self._words = shop.word_cache(self.index, wiki_id)
        # Its words were analysed by its own pipeline; one this version has no more was most likely of that language.
        language = (Pipeline.of(state.recipe) or parts.pipeline).language
        self.searcher = Searcher(
            self.index,
            self._vectors,
            self._words,
            self._embedder,
            head=parts.source.seen if parts.check_head else None,
            hits=HitMaker(self.index, parts.url, language),
            language=language,
            lexicon=shop.lexicon(self.index, self._words),
            scale=shop.scale(state.recipe),
            reranking=shop.reranking,
        )
        self._users = 0
        self._retired = False
        self._lock = Lock()

    def _embedder(self) -> Embedder:
        """The model of this generation: today's, or as long as this generation serves the one it was built with."""
        try:
            today = self._shop.embedder()
        except ModelError as error:
            with suppress(ModelError):
                self._former = self._former or self._shop.former(self._recipe)
            if self._former is None:
                raise error from None
            return self._former
        if today.fingerprint == self._recipe.fingerprint:
            self._former = None
            return today
        if self._former is None:
            self._former = self._shop.former(self._recipe)
        return self._former

    def refresh(self) -> None:
        self._vectors.refresh()
        if self._words is not None:
            self._words.refresh()

    def verify(self) -> None:
        """Read every byte of the caches; a damaged one is dropped, and made again from the index."""
        for cache in (self._vectors, self._words):
            if cache is not None:
                try:
                    cache.verify()
                except Exception:  # noqa: BLE001 - a cache may fail in any way; it has said so in the log
                    cache.refresh()

    def outgrown(self) -> bool:
        """Whether the wiki has grown so much since that other kinds of cache may suit it."""
        return self.searcher.pages > 2 * self._pages_then + _FEW

    def settle(self, timeout: float) -> None:
        for cache in (self._vectors, self._words):
            if cache is not None and cache.settle(timeout):
                cache.refresh()

    def begin(self) -> None:
        with self._lock:
            self._users += 1

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            last = self._retired and not self._users
        if last:
            self._close()

    def retire(self) -> None:
        with self._lock:
            self._retired = True
            idle = not self._users
        if idle:
            self._close()

    def _close(self) -> None:
        self._vectors.close()
        if self._words is not None:
            self._words.close()
        self.index.close()
