"""The weights inside a finished model of our own, its table of words, and dense layers.

Its matrices are in int8 with one scale per column, the rows balanced against the activations (smoothing).
"""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import ModelCorrupt
from wikiholt.models.model_card import ModelCard
from wikiholt.models.model_files import ModelFiles

Array = NDArray[Any]


class NibbleTable:
    """A table of 4-bit numbers (rows × blocks × 16 bytes) with one scale per block (rows × blocks × 1).

    A byte has two numbers, each plus 8: the low bits one of the first 16 of a block, the high bits one of the last 16.
    Rows are converted when they are read.
    """

    def __init__(self, pairs: NDArray[np.uint8], scales: NDArray[np.float16]) -> None:
        self.pairs = pairs
        self.scales = scales

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, rows: IntArray | slice) -> FloatArray:
        pairs = self.pairs[rows]
        count, blocks, half = pairs.shape
        # One array that every step writes to: this takes a third of the time of expressions.
        numbers = np.empty((count, blocks, 2 * half), np.float32)
        numbers[..., :half] = pairs & 15
        numbers[..., half:] = pairs >> 4
        numbers -= np.float32(8)
        numbers *= self.scales[rows].astype(np.float32)
        return numbers.reshape(count, 2 * blocks * half)


# The weights of a finished model are initializers in its ONNX file, which is a message of protocol buffers.

_GRAPH_FIELD, _INITIALIZER_FIELD = 7, 5
_DIMENSION_FIELD, _KIND_FIELD, _NAME_FIELD, _DATA_FIELD = 1, 2, 8, 9
_TENSOR_KINDS: Mapping[int, DTypeLike] = {1: "<f4", 2: "u1", 3: "i1", 7: "<i8", 10: "<f2"}


def read_initializers(model: memoryview) -> dict[str, Array]:
    """The weights inside an ONNX file, by name, not copied. The file must be verified."""
    graph = next(value for number, value in _read_fields(model) if number == _GRAPH_FIELD)
    found: dict[str, Array] = {}
    for number, tensor in _read_fields(graph):
        if number == _INITIALIZER_FIELD:
            fields = list(_read_fields(tensor))
            shape = [value for number, value in fields if number == _DIMENSION_FIELD]
            values = dict(fields)
            array = np.frombuffer(values[_DATA_FIELD], _TENSOR_KINDS[values[_KIND_FIELD]])
            found[bytes(values[_NAME_FIELD]).decode()] = array.reshape(shape)
    return found


def _read_fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """The number and value of each field: an integer, or the bytes of a string or message."""
    at = 0
    while at < len(message):
        key, at = _read_integer(message, at)
        number, at = _read_integer(message, at)
        if key & 7:  # bytes, of which the integer is the length
            yield key >> 3, message[at : at + number]
            at += number
        else:
            yield key >> 3, number


def _read_integer(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value, at


def convert_to_fp32(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """The weights of a finished model in fp32, as another runtime computes with them."""
    converted = dict(tensors)
    for name in [name.removesuffix(".int8") for name in tensors if name.endswith(".int8")]:
        matrix = converted.pop(f"{name}.int8") * converted.pop(f"{name}.scale")
        smooth = converted.pop(f"{name}.smooth", None)
        converted[name] = matrix if smooth is None else matrix * smooth[:, None]
    return converted


# Dense layers after the pooling: some models project their vectors to another dimension.


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
