"""What a model is, told by its card alone: no file of it is read, and nothing heavy imported."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from wikiholt.embedding.card import EMBEDDER, Card, Variant
from wikiholt.embedding.files import find_model
from wikiholt.errors import ModelMismatch
from wikiholt.model import Scale


@dataclass(frozen=True, slots=True)
class ModelIdentity:
    """By what vectors of one model are told from those of another."""

    fingerprint: str
    model: str
    precision: str
    dimensions: int
    scale: Scale


def identify(model: str | Path, precision: str | None, kind: str = EMBEDDER) -> ModelIdentity:
    """The identity that the model will have once it is loaded; raises ModelMissing, ModelCorrupt or ModelMismatch."""
    _, card = find_model(model, kind)
    variant = variant_of(card, precision)
    return ModelIdentity(fingerprint(card, variant), lasting(model), variant.precision, card.dimensions, card.scale)


def variant_of(card: Card, precision: str | None) -> Variant:
    chosen = card.variants.get(precision or card.precision)
    if chosen is None:
        hint = f"choose one of: {', '.join(sorted(card.variants))}"
        raise ModelMismatch(f"The model {card.name} has no precision {precision!r}", hint=hint)
    return chosen


def fingerprint(card: Card, variant: Variant) -> str:
    """Changes whenever the same text could get another vector."""
    digests = [f"{file}={card.digests[file]}" for file in sorted({card.tokenizer, *variant.files})]
    how = [variant.precision, card.pooling, str(card.normalise), repr(card.query_prefix), repr(card.passage_prefix)]
    digest = hashlib.sha256("\n".join([*how, *digests]).encode()).hexdigest()
    return f"{card.name}/{variant.precision}/{digest[:8]}"


def lasting(model: str | Path) -> str:
    """The name or directory of a model, from whichever directory it will be asked for."""
    return str(Path(model).resolve()) if Path(model).is_dir() else str(model)
