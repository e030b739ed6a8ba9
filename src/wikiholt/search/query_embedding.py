"""Embeds the query of a search. A model that can do so embeds it while the query is read and its words are searched."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder, SupportsQueryThreads, SupportsSentenceScoring
from wikiholt.errors import ModelError, ModelMismatch
from wikiholt.text.snippets import SentenceScorer

T = TypeVar("T")


class StartedQuery(NamedTuple):
    """A text that another thread embeds."""

    text: str
    embedder: Embedder
    get_vector: Callable[[], FloatArray]
    """Waits for the vector. Raises what `Embedder.embed_query` raises."""
    began: float
    """When it was started, in seconds of `time.perf_counter`."""


class EmbeddedQuery(NamedTuple):
    """The vector of a query, and the scorer of sentences if the model has one."""

    vector: FloatArray
    sentence_scorer: SentenceScorer | None


class QueryEmbedder:
    """Embeds the queries of one wiki. Safe to use from many threads."""

    def __init__(self, get_embedder: Callable[[], Embedder]) -> None:
        self._get_embedder = get_embedder
        self._is_warm = False

    def start(self, text: str) -> StartedQuery | None:
        """Start to embed a text in another thread; None if that cannot be done now. Never raises ModelError.

        Nothing is started before the first embedded query: a search that needs no model must not load it.
        """
        if not self._is_warm or not text:
            return None
        began = time.perf_counter()
        try:
            embedder = self._get_embedder()
            start = _find_method(SupportsQueryThreads.start_query, embedder)
            get_vector = start(text) if start is not None else None
        except ModelError:
            return None  # `embed` raises it, if the search needs the vector
        return None if get_vector is None else StartedQuery(text, embedder, get_vector, began)

    def embed(self, text: str, fingerprint: str, started: StartedQuery | None) -> EmbeddedQuery:
        """Embed a text with the model of the index, or wait for `started` if it is the same. Raises ModelError."""
        embedder = self._get_embedder()
        if embedder.fingerprint != fingerprint:
            raise ModelMismatch(
                f"the index was built with {fingerprint}, not with {embedder.fingerprint}",
                hint="run `wikiholt sync` to rebuild it with the configured model",
            )
        make_scorer = _find_method(SupportsSentenceScoring.make_sentence_scorer, embedder)
        scorer = make_scorer(text) if make_scorer is not None else None
        if started is not None and started.text == text and started.embedder is embedder:
            vector = started.get_vector()
        else:
            vector = embedder.embed_query(text)
        self._is_warm = True
        return EmbeddedQuery(vector, scorer)

    def is_known_word(self, word: str) -> bool:
        """Whether the model knows the word. Such a word is not a typo, even if it is on no page."""
        try:
            return self._get_embedder().is_known_word(word.lower())
        except ModelError:
            return False


def _find_method(method: Callable[[Any, str], T], embedder: Embedder) -> Callable[[str], T] | None:
    """The embedder's own form of an optional method. `isinstance` with a protocol would take .1 ms of each search."""
    return getattr(embedder, method.__name__, None)
