"""What a model is, told by its card alone: no file of it is read, and nothing heavy imported."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from wikiholt.embedding.card import EMBEDDER, ModelCard, ModelVariant
from wikiholt.embedding.files import find_model
from wikiholt.errors import ModelMismatch
from wikiholt.model import CosineScale


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """By what vectors of one model are told from those of another."""

    fingerprint: str
    model: str
    precision: str
    dimensions: int
    scale: CosineScale


def identify_model(model: str | Path, precision: str | None, kind: str = EMBEDDER) -> ModelIdentity:
    """The identity that the model will have once it is loaded; raises ModelMissing, ModelCorrupt or ModelMismatch."""
    _, card = find_model(model, kind)
    variant = get_variant(card, precision)
    return ModelIdentity(compute_fingerprint(card, variant), resolve_model_name(model), variant.precision, card.dimensions, card.scale)


def get_variant(card: ModelCard, precision: str | None) -> ModelVariant:
    chosen = card.variants.get(precision or card.precision)
    if chosen is None:
        hint = f"choose one of: {', '.join(sorted(card.variants))}"
        raise ModelMismatch(f"The model {card.name} has no precision {precision!r}", hint=hint)
    return chosen


def compute_fingerprint(card: ModelCard, variant: ModelVariant) -> str:
    """Changes whenever the same text could get another vector."""
    digests = [f"{file}={card.digests[file]}" for file in sorted({card.tokenizer, *variant.files})]
    how = [variant.precision, card.pooling, str(card.normalise), repr(card.query_prefix), repr(card.passage_prefix)]
    digest = hashlib.sha256("\n".join([*how, *digests]).encode()).hexdigest()
    return f"{card.name}/{variant.precision}/{digest[:8]}"


def resolve_model_name(model: str | Path) -> str:
    """The name or directory of a model, from whichever directory it will be asked for."""
    return str(Path(model).resolve()) if Path(model).is_dir() else str(model)
