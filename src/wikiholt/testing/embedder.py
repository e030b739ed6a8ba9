"""A stand-in for a model: fast, deterministic, and near for texts that share words."""

import re
from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from wikiholt.model import FloatArray, CosineScale

_TOKEN_PATTERN = re.compile(r"\w+|[^\w\s]")


class FakeEmbedder:
    """Each word points in a direction of its own; a text is the sum of its words."""

    def __init__(self, dimensions: int = 32, name: str = "fake", max_tokens: int = 254) -> None:
        self.fingerprint = f"{name}/{dimensions}"
        self.model = name
        self.precision = ""
        self.dimensions = dimensions
        self.scale = CosineScale()
        self.max_tokens = max_tokens
        self.embedded: list[str] = []
        """Every passage that was embedded, so that a test can count them."""

    def get_token_spans(self, text: str) -> Sequence[tuple[int, int]]:
        return [match.span() for match in _TOKEN_PATTERN.finditer(text)]

    def is_known_word(self, word: str) -> bool:  # noqa: ARG002
        """It has read nothing."""
        return False

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        self.embedded += texts
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        return np.stack([self._embed(text) for text in texts])

    def embed_query(self, text: str) -> FloatArray:
        return self._embed(text)

    def run_self_test(self) -> None:
        """Nothing to prove."""

    def _embed(self, text: str) -> FloatArray:
        total = np.full(self.dimensions, 1e-3, np.float32)
        for word in _TOKEN_PATTERN.findall(text.lower()):
            seed = int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
            total += np.random.default_rng(seed).standard_normal(self.dimensions).astype(np.float32)
        return np.asarray(total / np.linalg.norm(total), np.float32)
