"""Dense layers after the pooling: some models project their vectors to another dimension."""

import io
from dataclasses import dataclass

import numpy as np

from wikiholt.domain.index import FloatArray
from wikiholt.embedding.model_card import ModelCard
from wikiholt.embedding.model_files import ModelFiles
from wikiholt.errors import ModelCorrupt


@dataclass(frozen=True, slots=True)
class DenseLayer:
    """A matrix with a row per output, a bias, and an activation (identity or tanh)."""

    weight: FloatArray
    bias: FloatArray
    activation: str

    def apply(self, vector: FloatArray) -> FloatArray:
        result = self.weight @ vector + self.bias
        return np.asarray(np.tanh(result) if self.activation == "tanh" else result, np.float32)


def load_dense_layers(files: ModelFiles, card: ModelCard) -> tuple[DenseLayer, ...]:
    """The verified dense layers of a card. Raises ModelCorrupt if their sizes do not fit."""
    layers = []
    width = card.width
    for entry in card.dense:
        try:
            with np.load(io.BytesIO(files.read_verified(entry.file)), allow_pickle=False) as arrays:
                layer = DenseLayer(
                    arrays["weight"].astype(np.float32), arrays["bias"].astype(np.float32), entry.activation
                )
        except (ValueError, KeyError, OSError) as error:
            hint = "the file must be an .npz with the arrays weight and bias"
            raise ModelCorrupt(f"The dense layer {entry.file} of {card.name} cannot be read", hint=hint) from error
        if layer.weight.ndim != 2 or layer.weight.shape[1] != width or layer.bias.shape != layer.weight.shape[:1]:
            hint = "width is the dimension of the graph, and each layer must continue with that of the one before"
            raise ModelCorrupt(f"The dense layer {entry.file} of {card.name} has the wrong shape", hint=hint)
        layers.append(layer)
        width = len(layer.weight)
    if width != card.dimensions:
        hint = "dimensions must be that of the last dense layer"
        raise ModelCorrupt(f"The dense layers of {card.name} return {width} numbers, not {card.dimensions}", hint=hint)
    return tuple(layers)
