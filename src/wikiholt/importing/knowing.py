"""A model that knows some texts already: their vectors come from a shared index, all others from the model itself."""

from collections.abc import Sequence
from threading import Lock

import numpy as np

from wikiholt.importing.spool import WikiVectors
from wikiholt.model import FloatArray, CosineScale
from wikiholt.pages import hash_text
from wikiholt.ports import Embedder


class ReusingEmbedder:
    """An Embedder for one wiki, with the same vectors as the one behind it; only they may come sooner."""

    def __init__(self, embedder: Embedder, known_vectors: WikiVectors, trusted_models: frozenset[str]) -> None:
        """`models` are those whose vectors proved to be the embedder's own."""
        self._embedder = embedder
        self._known_vectors = known_vectors
        self._trusted_models = trusted_models
        self._lock = Lock()
        self.reused = 0
        self.embedded = 0

    @property
    def fingerprint(self) -> str:
        return self._embedder.fingerprint

    @property
    def model(self) -> str:
        return self._embedder.model

    @property
    def precision(self) -> str:
        return self._embedder.precision

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    @property
    def scale(self) -> CosineScale:
        return self._embedder.scale

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return self._embedder.get_token_spans(text)

    def is_known_word(self, word: str) -> bool:
        return self._embedder.is_known_word(word)

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        hashes = [hash_text(text) for text in texts]
        known = self._known_vectors.find_vectors(hashes, self._trusted_models) if self._trusted_models else {}
        fresh = [text for text, digest in zip(texts, hashes, strict=True) if digest not in known]
        made = iter(self._embedder.embed_passages(fresh) if fresh else ())
        rows = [known[digest] if digest in known else next(made) for digest in hashes]
        with self._lock:
            self.reused += len(texts) - len(fresh)
            self.embedded += len(fresh)
        return np.stack(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def embed_query(self, text: str) -> FloatArray:
        return self._embedder.embed_query(text)

    def run_self_test(self) -> None:
        self._embedder.run_self_test()
