"""Whether the vectors of a shared index equal ours, and an embedder that reuses them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import SystemRandom
from threading import Lock
from typing import Any, Protocol

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.domain.protocols import Embedder
from wikiholt.index.pipeline import hash_text

MIN_SAME_COSINE = 0.9999
"""The lowest cosine of equal vectors. Between int8 and fp32 of one model it was as low as 0.9959."""
_MIN_NEAR_COSINE = 0.98
"""Above this it is probably the same model at another precision."""


@dataclass(slots=True)
class VectorSamples:
    """A uniform random sample (reservoir sampling) of the matched texts and vectors of each model."""

    size: int
    samples: dict[str, list[tuple[str, FloatArray]]] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def draw(self, model: str, text: str, vector: FloatArray) -> None:
        """Add the next matched text to the sample of its model, or not, by chance."""
        self._seen[model] = self._seen.get(model, 0) + 1
        slot = SystemRandom().randrange(self._seen[model])
        sample = self.samples.setdefault(model, [])
        if len(sample) < self.size:
            sample.append((text, vector))
        elif slot < self.size:
            sample[slot] = (text, vector)


@dataclass(frozen=True, slots=True)
class ModelAgreement:
    """Whether the vectors of one model equal ours, by embedding a random sample again."""

    model: str
    sampled: int
    least: float | None
    """The lowest cosine between a vector of the sample and our own."""
    agrees: bool
    reason: str = ""


def check_agreement(model: str, sample: Sequence[tuple[str, FloatArray]], embedder: Embedder) -> ModelAgreement:
    """Embed the sample again. One different vector is enough to reuse none."""
    if not sample:
        return ModelAgreement(model, 0, None, agrees=False, reason="no text matches a text that Wikiholt would embed")
    ours = embedder.embed_passages([text for text, _ in sample])
    lowest = float(np.min(np.sum(ours * np.stack([vector for _, vector in sample]), axis=1)))
    reason = ""
    if lowest < _MIN_NEAR_COSINE:
        reason = "they are from another model, or damaged"
    elif lowest < MIN_SAME_COSINE:
        reason = f"they are close but not equal: probably another precision than {embedder.precision or 'this'}"
    return ModelAgreement(model, len(sample), lowest, agrees=lowest >= MIN_SAME_COSINE, reason=reason)


class KnownVectors(Protocol):
    """Vectors of other indexes by wiki and text."""

    def find_vectors(self, slug: str, hashes: Sequence[bytes], /) -> Mapping[bytes, tuple[str, FloatArray]]:
        """The model and the vector of each known text of a wiki, by its hash."""


class ReusingEmbedder:
    """An Embedder for one wiki that takes known vectors from the shared index and leaves all else to another."""

    def __init__(self, embedder: Embedder, spool: KnownVectors, slug: str, trusted_models: frozenset[str]) -> None:
        """`trusted_models` are those whose vectors equal the embedder's."""
        self._embedder = embedder
        self._spool = spool
        self._slug = slug
        self._trusted_models = trusted_models
        self._lock = Lock()
        self.reused = 0
        self.embedded = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._embedder, name)

    def embed_passages(self, texts: Sequence[str]) -> FloatArray:
        hashes = [hash_text(text) for text in texts]
        found = self._spool.find_vectors(self._slug, hashes) if self._trusted_models else {}
        known = {digest: vector for digest, (model, vector) in found.items() if model in self._trusted_models}
        new_texts = [text for text, digest in zip(texts, hashes, strict=True) if digest not in known]
        computed = iter(self._embedder.embed_passages(new_texts) if new_texts else ())
        rows = [known[digest] if digest in known else next(computed) for digest in hashes]
        with self._lock:
            self.reused += len(texts) - len(new_texts)
            self.embedded += len(new_texts)
        return np.stack(rows) if rows else np.empty((0, self._embedder.dimensions), np.float32)
