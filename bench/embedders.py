"""Embedders that save time in a benchmark: they reuse vectors, or make random ones."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.index.pipeline import hash_text


class EmbedderWrapper:
    """Does what the wrapped embedder does, unless a subclass does something else."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)


class CachingEmbedder(EmbedderWrapper):
    """Embeds no text twice, and runs the self-test once."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self._passages: dict[bytes, FloatArray] = {}
        self._queries: dict[str, FloatArray] = {}
        self._is_tested = False

    def run_self_test(self) -> None:
        if not self._is_tested:
            self._embedder.run_self_test()
        self._is_tested = True

    def embed_query(self, text: str) -> FloatArray:
        if text not in self._queries:
            self._queries[text] = self._embedder.embed_query(text)
        return self._queries[text]

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        hashes = list(map(hash_text, texts))
        missing = {digest: text for digest, text in zip(hashes, texts, strict=True) if digest not in self._passages}
        if missing:
            vectors = self._embedder.embed_passages(list(missing.values()))
            self._passages |= zip(missing, vectors, strict=True)
        return np.stack([self._passages[digest] for digest in hashes])


class IndexedEmbedder(EmbedderWrapper):
    """Takes the vectors of passages from an index that has them."""

    def __init__(self, embedder: Embedder, index: WikiIndex) -> None:
        super().__init__(embedder)
        self._index = index

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        hashes = list(map(hash_text, texts))
        known = self._index.find_vectors_by_hash(hashes)
        missing = iter(self._embedder.embed_passages([t for t, h in zip(texts, hashes, strict=True) if h not in known]))
        return np.stack([known[each] if each in known else next(missing) for each in hashes])


class RandomEmbedder(EmbedderWrapper):
    """Gives every passage a random vector: a save costs the same, and a wiki is indexed in minutes."""

    def __init__(self, embedder: Embedder) -> None:
        super().__init__(embedder)
        self._random = np.random.default_rng(7)

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        vectors = self._random.standard_normal((len(texts), self._embedder.dimensions), np.float32)
        return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)
