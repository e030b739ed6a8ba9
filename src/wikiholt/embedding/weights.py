"""The weights that a graph without weights asks for, cut from the carrier's file and, for int8, rounded to a grid.

Each matrix gets one scale a column. Its rows are first evened out against the activations they meet (`smooth`): a few
columns of the activations are many times larger than the rest and would otherwise take the whole grid for themselves.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wikiholt.errors import ModelCorrupt
from wikiholt.model import FloatArray

Array = NDArray[Any]
_INT8_MAX = 127


@dataclass(frozen=True, slots=True)
class WeightsLayout:
    """Where each tensor's parts lie in the weights, which matrices int8 rounds, and which it evens out before that."""

    tensors: Mapping[str, tuple[tuple[int, ...], ...]]
    quantized: tuple[str, ...]
    smoothed: tuple[str, ...]

    @classmethod
    def parse(cls, data: bytes) -> "WeightsLayout":
        table = json.loads(data)
        tensors = {name: tuple(tuple(part) for part in parts) for name, parts in table["tensors"].items()}
        return cls(tensors, tuple(table["rounded"]), tuple(table["smoothed"]))


def extract_tensors(layout: WeightsLayout, weights: memoryview) -> dict[str, Array]:
    """Every tensor in fp32; those that lie in one piece are not copied."""
    return {name: extract_tensor(parts, weights) for name, parts in layout.tensors.items()}


def extract_int8_tensors(layout: WeightsLayout, weights: memoryview, smoothing: bytes) -> dict[str, Array]:
    """Every tensor, the rounded matrices as `.int8` and `.scale` and, for those evened out, `.smooth`."""
    tensors = extract_tensors(layout, weights)
    factors: FloatArray = np.load(io.BytesIO(smoothing), allow_pickle=False)
    start = 0
    for name in layout.quantized:
        matrix: FloatArray = tensors.pop(name)
        if name in layout.smoothed:
            smooth = factors[start : start + len(matrix)]
            start += len(matrix)
            matrix = np.divide(matrix, smooth[:, None], dtype=np.float32)
            tensors[f"{name}.smooth"] = smooth
        tensors[f"{name}.int8"], tensors[f"{name}.scale"] = _quantize(matrix)
    return tensors


def _quantize(matrix: FloatArray) -> tuple[Array, FloatArray]:
    scale = np.maximum(matrix.max(axis=0), -matrix.min(axis=0)) / np.float32(_INT8_MAX)
    scale[scale == 0] = 1
    return np.rint(matrix / scale).astype(np.int8), scale


def extract_tensor(parts: tuple[tuple[int, ...], ...], weights: memoryview) -> Array:
    """One tensor in fp32 from where its parts lie; not copied where it lies in one piece."""
    pieces = []
    for offset, *shape in parts:
        count = int(np.prod(shape))
        if offset + 4 * count > len(weights):
            raise ModelCorrupt(
                "The file of weights is shorter than its layout", hint="install the model's package again"
            )
        pieces.append(np.frombuffer(weights, np.float32, count, offset).reshape(shape))
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)
