"""A model that knows some texts already: their vectors come from a shared index, all others from the model itself."""

from collections.abc import Sequence
from threading import Lock

import numpy as np

from wikiholt.importing.spool import WikiVectors
from wikiholt.model import Floats, Scale
from wikiholt.pages import text_hash
from wikiholt.ports import Embedder


class Knowing:
    """An Embedder for one wiki, with the same vectors as the one behind it; only they may come sooner."""

    def __init__(self, embedder: Embedder, known: WikiVectors, models: frozenset[str]) -> None:
        """`models` are those whose vectors proved to be the embedder's own."""
        self._embedder = embedder
        self._known = known
        self._models = models
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
    def scale(self) -> Scale:
        return self._embedder.scale

    @property
    def max_tokens(self) -> int:
        return self._embedder.max_tokens

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return self._embedder.token_spans(text)

    def knows(self, word: str) -> bool:
        return self._embedder.knows(word)

    def passages(self, texts: Sequence[str]) -> Floats:
        hashes = [text_hash(text) for text in texts]
        known = self._known.vectors(hashes, self._models) if self._models else {}
        fresh = [text for text, digest in zip(texts, hashes, strict=True) if digest not in known]
        made = iter(self._embedder.passages(fresh) if fresh else ())
        rows = [known[digest] if digest in known else next(made) for digest in hashes]
        with self._lock:
            self.reused += len(texts) - len(fresh)
            self.embedded += len(fresh)
        return np.stack(rows) if rows else np.empty((0, self.dimensions), np.float32)

    def query(self, text: str) -> Floats:
        return self._embedder.query(text)

    def prove(self) -> None:
        self._embedder.prove()
