"""Trained layers in a small file: matrices as int8 in blocks of 32 with a scale each. Needs NumPy only."""

from pathlib import Path

import numpy as np

BLOCK = 32
FROZEN = ("word_emb", "pos_emb", "type_emb")
"""Tables that training leaves as they are: rare words keep their meaning, and the file has layers only."""


def write_layers(path: Path, weights: dict[str, np.ndarray]) -> None:
    """Write all weights except the frozen tables."""
    arrays = {}
    for name, weight in weights.items():
        if name in FROZEN:
            continue
        if weight.ndim == 1:
            arrays[name] = weight.astype(np.float32)
            continue
        blocks = weight.reshape(weight.shape[0], -1, BLOCK)
        scales = np.maximum(np.abs(blocks).max(-1, keepdims=True) / 127, 1e-8)
        arrays[name] = np.round(blocks / scales).astype(np.int8)
        arrays[name + ".scales"] = scales.astype(np.float32)
    np.savez(path, **arrays)


def read_layers(path: Path) -> dict[str, np.ndarray]:
    """The weights in a file that `write_layers` wrote."""
    with np.load(path) as arrays:
        weights = {}
        for name in arrays.files:
            if name.endswith(".scales"):
                continue
            array = arrays[name]
            if array.dtype == np.int8:
                array = (array * arrays[name + ".scales"]).reshape(array.shape[0], -1)
            weights[name] = array.astype(np.float32)
        return weights
