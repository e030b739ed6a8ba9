"""The proof that an embedder works: known sentences must give the known vectors."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.embedding.model_card import ModelCard
from wikiholt.errors import ModelCorrupt, ModelSelfTestFailed

_SIMILAR_SENTENCES = ("The cat sleeps on the sofa.", "A cat is sleeping on the couch.")
_UNRELATED_SENTENCE = "The central bank raised interest rates again."
_SELF_TEST_HINT = "nothing was indexed; install the model again, or choose another precision (fp32 runs everywhere)"


@dataclass(frozen=True, slots=True)
class ReferenceVector:
    """A passage and the vector that the model's own authors' code gives it."""

    text: str
    vector: FloatArray


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A query, a text and the score that a reranker gives the two."""

    query: str
    text: str
    score: float


def parse_pairs(data: bytes, card: ModelCard) -> tuple[KnownPair, ...]:
    """The known pairs in this JSON file: a list of objects with `query`, `text` and `score`."""
    try:
        rows = json.loads(data)
        return tuple(KnownPair(str(row["query"]), str(row["text"]), float(row["score"])) for row in rows)
    except (ValueError, KeyError, TypeError) as error:
        hint = "the file must be a JSON list of objects with query, text and score"
        raise ModelCorrupt(f"The references of {card.name} cannot be read: {error}", hint=hint) from error


def parse_references(data: bytes, card: ModelCard) -> tuple[ReferenceVector, ...]:
    """The references in this JSON file: a list of objects with `text` and `vector`."""
    try:
        found = tuple(
            ReferenceVector(str(row["text"]), np.array(row["vector"], np.float32)) for row in json.loads(data)
        )
    except (ValueError, KeyError, TypeError) as error:
        hint = "the file must be a JSON list of objects with text and vector"
        raise ModelCorrupt(f"The references of {card.name} cannot be read: {error}", hint=hint) from error
    if any(reference.vector.shape != (card.dimensions,) for reference in found):
        hint = f"each vector must have the {card.dimensions} dimensions of the card"
        raise ModelCorrupt(f"The references of {card.name} have the wrong dimension", hint=hint)
    return found


def check_vector(vector: FloatArray, card: ModelCard) -> None:
    """Raise ModelUnproven unless this is a vector that may be indexed."""
    if vector.shape != (card.dimensions,):
        raise ModelSelfTestFailed(
            f"{card.name} gave {vector.shape} instead of {card.dimensions} numbers", hint=_SELF_TEST_HINT
        )
    length = float(np.sqrt(np.dot(vector, vector)))
    if not np.isfinite(length):
        raise ModelSelfTestFailed(f"{card.name} gave a vector with numbers that are not finite", hint=_SELF_TEST_HINT)
    if length == 0:
        raise ModelSelfTestFailed(f"{card.name} gave a vector of zeros", hint=_SELF_TEST_HINT)
    if card.normalise and abs(length - 1) > 1e-3:
        raise ModelSelfTestFailed(
            f"{card.name} gave a vector of length {length:.4f} instead of 1", hint=_SELF_TEST_HINT
        )


def check_references(
    card: ModelCard, fidelity: float, references: tuple[ReferenceVector, ...], embed: Callable[[str], FloatArray]
) -> None:
    """Raise ModelUnproven unless the references come out as they should and like sentences lie closer than unlike."""
    for reference in references:
        found = _compute_cosine(embed(reference.text), reference.vector)
        if not found >= fidelity:
            message = f"{card.name} gave {reference.text!r} a vector with cosine {found:.4f} to the known one"
            raise ModelSelfTestFailed(f"{message}, below {fidelity}", hint=_SELF_TEST_HINT)
    one, other, stranger = (embed(text) for text in (*_SIMILAR_SENTENCES, _UNRELATED_SENTENCE))
    if not _compute_cosine(one, other) > _compute_cosine(one, stranger) + 1e-6:
        raise ModelSelfTestFailed(f"{card.name} finds unlike sentences as near as like ones", hint=_SELF_TEST_HINT)


def check_pairs(
    card: ModelCard, tolerance: float, pairs: tuple[KnownPair, ...], score: Callable[[str, str], float]
) -> None:
    """Raise ModelUnproven unless known pairs get the known scores and an answer gets more than a stranger."""
    hint = "nothing is reranked meanwhile; install the model again, or choose another as rerank.model"
    for pair in pairs:
        found = score(pair.query, pair.text)
        if not abs(found - pair.score) <= tolerance:
            message = f"{card.name} gave a known pair the score {found:.3f} instead of {pair.score:.3f}"
            raise ModelSelfTestFailed(f"{message}, more than {tolerance} off", hint=hint)
    if not score("where does the cat sleep?", _SIMILAR_SENTENCES[0]) > score(
        "where does the cat sleep?", _UNRELATED_SENTENCE
    ):
        raise ModelSelfTestFailed(f"{card.name} finds a strange text as good an answer as the right one", hint=hint)


def _compute_cosine(one: FloatArray, other: FloatArray) -> float:
    return float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))
