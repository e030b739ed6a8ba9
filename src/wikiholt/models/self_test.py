"""Self-tests of models: known sentences must give known vectors, and known pairs known scores."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from wikiholt.domain.index import CosineScale, FloatArray
from wikiholt.errors import ModelCorrupt, ModelSelfTestFailed
from wikiholt.models.model_card import ModelCard

_SIMILAR_SENTENCES = ("The cat sleeps on the sofa.", "A cat is sleeping on the couch.")
_UNRELATED_SENTENCE = "The central bank raised interest rates again."
QUESTIONS_AND_ANSWERS = (
    ("how do I restore a backup?", "To go back to a saved copy, stop the service and run the restore command."),
    ("when is the office closed?", "Nobody is in the building on public holidays and between Christmas and New Year."),
    ("which port does the database use?", "PostgreSQL listens on 5432 unless the configuration names another number."),
    ("who approves travel expenses?", "Send the receipts of a trip to your manager, who signs the claim."),
    ("why is the build slow?", "Compilation takes long because the cache of object files is empty after each commit."),
    ("how are tomatoes watered?", "In summer the plants need a litre each morning, given to the roots."),
)
"""Questions with their answers, without common words. Each answer is unrelated to the other questions."""
SELF_TEST_HINT = "nothing was indexed; reinstall the model, or choose another model or precision (fp32 always runs)"


@dataclass(frozen=True, slots=True)
class ReferenceVector:
    """A passage and its vector as computed by the code of the model's authors."""

    text: str
    vector: FloatArray


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A query, a text and the score of the pair."""

    query: str
    text: str
    score: float


def parse_pairs(data: bytes, card: ModelCard) -> tuple[KnownPair, ...]:
    """Parse the known pairs: a JSON list of objects with `query`, `text` and `score`."""
    try:
        rows = json.loads(data)
        return tuple(KnownPair(str(row["query"]), str(row["text"]), float(row["score"])) for row in rows)
    except (ValueError, KeyError, TypeError) as error:
        hint = "the file must be a JSON list of objects with query, text and score"
        raise ModelCorrupt(f"The references of {card.name} cannot be read: {error}", hint=hint) from error


def parse_references(data: bytes, card: ModelCard) -> tuple[ReferenceVector, ...]:
    """Parse the reference vectors: a JSON list of objects with `text` and `vector`."""
    try:
        references = tuple(
            ReferenceVector(str(row["text"]), np.array(row["vector"], np.float32)) for row in json.loads(data)
        )
    except (ValueError, KeyError, TypeError) as error:
        hint = "the file must be a JSON list of objects with text and vector"
        raise ModelCorrupt(f"The references of {card.name} cannot be read: {error}", hint=hint) from error
    if any(reference.vector.shape != (card.dimensions,) for reference in references):
        hint = f"each vector must have the {card.dimensions} dimensions of the card"
        raise ModelCorrupt(f"The references of {card.name} have the wrong dimension", hint=hint)
    return references


def check_references(
    card: ModelCard, fidelity: float, references: tuple[ReferenceVector, ...], embed: Callable[[str], FloatArray]
) -> None:
    """Raise ModelSelfTestFailed unless the references match and similar sentences are closer than unrelated ones."""
    for reference in references:
        cosine = compute_cosine(embed(reference.text), reference.vector)
        if not cosine >= fidelity:
            message = f"{card.name} returned a vector for {reference.text!r} with cosine {cosine:.4f} to the known one"
            raise ModelSelfTestFailed(f"{message}, below {fidelity}", hint=SELF_TEST_HINT)
    check_similarity(card.name, embed)


def check_similarity(name: str, embed: Callable[[str], FloatArray]) -> None:
    """Raise ModelSelfTestFailed unless similar sentences are closer than unrelated ones."""
    first, similar, unrelated = (embed(text) for text in (*_SIMILAR_SENTENCES, _UNRELATED_SENTENCE))
    if not compute_cosine(first, similar) > compute_cosine(first, unrelated) + 1e-6:
        raise ModelSelfTestFailed(f"{name} finds unrelated sentences as close as similar ones", hint=SELF_TEST_HINT)


def estimate_scale(questions: Sequence[FloatArray], answers: Sequence[FloatArray]) -> CosineScale:
    """The scale of a model without a measured one: 0 is the mean cosine of questions and answers to other questions."""
    cosines = np.stack(questions) @ np.stack(answers).T
    count = len(cosines)
    unrelated = float((cosines.sum() - np.trace(cosines)) / (count * (count - 1)))
    return CosineScale(round(min(max(unrelated, 0.0), 0.9), 2), 1.0)


def check_pairs(
    card: ModelCard, tolerance: float, pairs: tuple[KnownPair, ...], score: Callable[[str, str], float]
) -> None:
    """Raise ModelSelfTestFailed unless known pairs get their scores and an answer scores above an unrelated text."""
    hint = "reranking is disabled meanwhile; reinstall the model, or set another rerank.model"
    for pair in pairs:
        actual = score(pair.query, pair.text)
        if not abs(actual - pair.score) <= tolerance:
            message = f"{card.name} gave a known pair the score {actual:.3f} instead of {pair.score:.3f}"
            raise ModelSelfTestFailed(f"{message}, more than {tolerance} off", hint=hint)
    if not score("where does the cat sleep?", _SIMILAR_SENTENCES[0]) > score(
        "where does the cat sleep?", _UNRELATED_SENTENCE
    ):
        raise ModelSelfTestFailed(f"{card.name} scores an unrelated text as high as the right answer", hint=hint)


def compute_cosine(one: FloatArray, other: FloatArray) -> float:
    return float(np.dot(one, other) / (np.linalg.norm(one) * np.linalg.norm(other)))
