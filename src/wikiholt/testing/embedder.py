"""A stand-in for a model: fast, deterministic, and near for texts that share words."""

import re
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from wikiholt.model import Floats, Scale

_WORD = re.compile(r"\w+|[^\w\s]")


class FakeEmbedder:
    """Each word points in a direction of its own; a text is the sum of its words."""

    def __init__(self, dimensions: int = 32, name: str = "fake", max_tokens: int = 254) -> None:
        self.fingerprint = f"{name}/{dimensions}"
        self.model = name
        self.precision = ""
        self.dimensions = dimensions
        self.scale = Scale()
        self.max_tokens = max_tokens
        self.embedded: list[str] = []
        """Every passage that was embedded, so that a test can count them."""

    def token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in _WORD.finditer(text)]

    def knows(self, word: str) -> bool:  # noqa: ARG002
        """It has read nothing."""
        return False

    def passages(self, texts: Sequence[str]) -> Floats:
        self.embedded += texts
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        return np.stack([self._vector(text) for text in texts])

    def query(self, text: str) -> Floats:
        return self._vector(text)

    def prove(self) -> None:
        """Nothing to prove."""

    def _vector(self, text: str) -> Floats:
        total = np.full(self.dimensions, 1e-3, np.float32)
        for word in _WORD.findall(text.lower()):
            seed = int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
            total += np.random.default_rng(seed).standard_normal(self.dimensions).astype(np.float32)
        return np.asarray(total / np.linalg.norm(total), np.float32)
