"""The weights of a model: where tensors are in their file, their conversion for a session, and dense layers.

A finished model has its weights inside its ONNX file: matrices in int8, the table of words in 4 bits. For the models in
other packages they are converted when the model is loaded. For int8 each matrix gets one scale per column. Its rows are
first balanced against the activations (smoothing): a few activation columns are many times larger than the rest and
would otherwise use up the int8 range.
"""

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import ModelCorrupt
from wikiholt.models.model_card import INT8_MAX, ModelCard
from wikiholt.models.model_files import ModelFiles

Array = NDArray[Any]
NIBBLE_BLOCK_SIZE = 32
_NIBBLE_BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", NIBBLE_BLOCK_SIZE // 2)])
"""A byte contains two numbers, each plus 8: the low bits one of the first 16, the high bits one of the last 16."""


class NibbleTable:
    """A table of 4-bit numbers (rows × blocks × 16 bytes) with one scale per block (rows × blocks × 1).

    Rows are converted when they are read.
    """

    def __init__(self, pairs: NDArray[np.uint8], scales: NDArray[np.float16]) -> None:
        self.pairs = pairs
        self.scales = scales

    @classmethod
    def read(cls, weights: memoryview, offset: int, rows: int, columns: int) -> "NibbleTable":
        """The table at this offset, not copied. Raises ModelCorrupt if it is not completely in the weights."""
        blocks = _read_array(weights, _NIBBLE_BLOCK, offset, [rows, columns // NIBBLE_BLOCK_SIZE])
        return cls(blocks["pairs"], blocks["scale"][..., None])

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


@dataclass(frozen=True, slots=True)
class WeightsLayout:
    """Offsets of each tensor's parts in the weights, the matrices that int8 quantizes, and those it smooths first.

    `nibbles` locates the parts of tensors of 4-bit numbers: offset, rows, columns. Such a matrix has a row per output.
    """

    tensors: Mapping[str, tuple[tuple[int, ...], ...]]
    quantized: tuple[str, ...]
    smoothed: tuple[str, ...]
    transposed: frozenset[str] = frozenset()
    """The fp32 matrices that the file stores with a row per output."""
    nibbles: Mapping[str, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: bytes) -> "WeightsLayout":
        table = json.loads(data)
        tensors = {name: tuple(tuple(part) for part in parts) for name, parts in table["tensors"].items()}
        nibbles = {name: tuple(tuple(part) for part in parts) for name, parts in table.get("nibbles", {}).items()}
        return cls(
            tensors, tuple(table["rounded"]), tuple(table["smoothed"]), frozenset(table.get("transposed", ())), nibbles
        )


def extract_tensors(
    layout: WeightsLayout, weights: memoryview, omitted: Collection[str] = frozenset()
) -> dict[str, Array]:
    """Every tensor in fp32, except a table of words in 4 bits: as `.pairs` and `.scale`.

    An fp32 tensor of one part is not copied.
    """
    tensors: dict[str, Array] = {}
    for name in (*layout.tensors, *layout.nibbles):
        if name in omitted:
            continue
        if name in layout.tensors or name in layout.quantized:
            tensors[name] = _extract_matrix(layout, name, weights)
        else:
            table = NibbleTable.read(weights, *layout.nibbles[name][0])
            tensors[f"{name}.pairs"] = np.ascontiguousarray(table.pairs)
            tensors[f"{name}.scale"] = np.ascontiguousarray(table.scales)
    return tensors


def extract_int8_tensors(
    layout: WeightsLayout, weights: memoryview, smoothing: bytes, int8_max: int = INT8_MAX
) -> dict[str, Array]:
    """Every tensor; quantized matrices as `.int8` and `.scale` and, if smoothed, `.smooth`."""
    tensors = extract_tensors(layout, weights, layout.quantized)
    factors: FloatArray = np.load(io.BytesIO(smoothing), allow_pickle=False)
    start = 0
    # One after the other: all of them in fp32 would take more memory than the model does later.
    for name in layout.quantized:
        matrix = _extract_matrix(layout, name, weights)
        if name in layout.smoothed:
            smooth = factors[start : start + len(matrix)]
            start += len(matrix)
            matrix = np.divide(matrix, smooth[:, None], dtype=np.float32)
            tensors[f"{name}.smooth"] = smooth
        tensors[f"{name}.int8"], tensors[f"{name}.scale"] = _quantize(matrix, int8_max)
    return tensors


def _extract_matrix(layout: WeightsLayout, name: str, weights: memoryview) -> FloatArray:
    """A tensor in fp32, whatever its form in the file."""
    if name in layout.tensors:
        return extract_tensor(layout.tensors[name], weights, is_transposed=name in layout.transposed)
    tables = [NibbleTable.read(weights, *part) for part in layout.nibbles[name]]
    return np.ascontiguousarray(np.concatenate([table[:] for table in tables]).T)


def _quantize(matrix: FloatArray, int8_max: int) -> tuple[Array, FloatArray]:
    scale = np.maximum(matrix.max(axis=0), -matrix.min(axis=0)) / np.float32(int8_max)
    scale[scale == 0] = 1
    return np.rint(matrix / scale).astype(np.int8), scale


def extract_tensor(
    parts: tuple[tuple[int, ...], ...], weights: memoryview, *, is_transposed: bool = False
) -> FloatArray:
    """One tensor in fp32 from its parts; not copied if there is only one part, unless it is transposed."""
    pieces: list[FloatArray] = [_read_array(weights, np.float32, offset, shape) for offset, *shape in parts]
    if is_transposed:
        pieces = [np.ascontiguousarray(piece.T) for piece in pieces]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-1)


def _read_array(weights: memoryview, kind: DTypeLike, offset: int, shape: Sequence[int]) -> Array:
    count = int(np.prod(shape))
    if offset + count * np.dtype(kind).itemsize > len(weights):
        raise ModelCorrupt("The weights file is shorter than its layout", hint="reinstall the model's package")
    return np.frombuffer(weights, kind, count, offset).reshape(shape)


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
