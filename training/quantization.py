"""Rounds trained weights: matrices to int8, balanced against their inputs, and the table of words to 4 bits in blocks.

An int8 matrix has one scale per column. A few columns of its input are many times larger than the rest and would use up
the range, so a factor per column moves a part of their size into the matrix (smoothing).
"""

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
import onnxruntime

ALPHA = 0.7
"""How much of the unevenness of the inputs moves into the matrix: of .5 to 1 the best by cosine to fp32."""
MIN_COLUMN_SHARE = 0.05
"""A column that is hardly used in the calibration texts counts as this share of the median one."""
WORD_BLOCK = 32
"""Numbers of the table of words that share a scale."""
_SCALE_STEPS = np.linspace(0.7, 1.05, 15, dtype=np.float32)
"""Candidates for a scale, as shares of the one that reaches the largest number of the block."""
_ROWS_AT_ONCE = 4096

Feed = Mapping[str, np.ndarray]


def find_products(model: onnx.ModelProto) -> dict[str, str]:
    """The matrix of each product → its input. A classifier stays in fp32."""
    return {
        node.input[1]: node.input[0]
        for node in model.graph.node
        if node.op_type == "MatMul" and node.input[1].startswith("layers.")
    }


def find_largest_inputs(
    model: onnx.ModelProto, tensors: Mapping[str, np.ndarray], feeds: Iterable[Feed]
) -> dict[str, np.ndarray]:
    """The largest magnitude that each column of each product's input reaches."""
    tapped = onnx.ModelProto()
    tapped.CopyFrom(model)
    inputs = find_products(tapped)
    for name in dict.fromkeys(inputs.values()):
        tapped.graph.output.add(name=name)
    session = create_session(tapped, tensors)
    largest: dict[str, np.ndarray] = {}
    for feed in feeds:
        for name, value in zip(inputs, session.run(list(inputs.values()), dict(feed)), strict=True):
            seen = np.abs(value).max(axis=0)
            largest[name] = np.maximum(largest.get(name, seen), seen)
    return largest


def create_session(model: onnx.ModelProto, tensors: Mapping[str, np.ndarray]) -> onnxruntime.InferenceSession:
    """A session of a graph whose weights are these tensors."""
    options = onnxruntime.SessionOptions()
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(value) for value in tensors.values()]
    options.add_external_initializers(list(tensors), values)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, disabled_optimizers=["LayerNormFusion"])


def compute_smoothing(name: str, largest: np.ndarray) -> np.ndarray | None:
    """A factor for each column of a matrix's input, so that no column needs a much coarser grid than the others.

    None for the attention's output, which is even enough as it is.
    """
    if name.endswith(".out"):
        return None
    scale = np.maximum(largest, MIN_COLUMN_SHARE * np.median(largest)) ** ALPHA
    return (np.exp(np.log(scale).mean()) / scale).astype(np.float32)


def quantize(
    tensors: Mapping[str, np.ndarray], smoothing: Mapping[str, np.ndarray | None], int8_max: int
) -> dict[str, np.ndarray]:
    """All tensors, those of `smoothing` as `.int8`, `.scale` and, with factors for their rows, `.smooth`."""
    quantized: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        if name not in smoothing:
            quantized[name] = tensor
            continue
        matrix, smooth = tensor, smoothing[name]
        if smooth is not None:
            quantized[f"{name}.smooth"], matrix = smooth, tensor / smooth[:, None]
        scale = np.abs(matrix).max(axis=0) / np.float32(int8_max)
        scale[scale == 0] = 1
        quantized[f"{name}.int8"], quantized[f"{name}.scale"] = np.rint(matrix / scale).astype(np.int8), scale
    return quantized


def quantize_words(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of 4-bit numbers (rows × blocks × 16 bytes) and fp16 scales (rows × blocks × 1) of a table.

    The low bits of a byte are one of the first 16 numbers of a block plus 8, the high bits one of the last 16.
    """
    parts = [_quantize_rows(table[at : at + _ROWS_AT_ONCE]) for at in range(0, len(table), _ROWS_AT_ONCE)]
    return np.concatenate([pairs for pairs, _ in parts]), np.concatenate([scales for _, scales in parts])


def _quantize_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    blocks = rows.reshape(len(rows), -1, WORD_BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1, keepdims=True), axis=-1)
    best_scale, best_numbers, best_error = None, None, None
    for step in _SCALE_STEPS:
        # The range is −8 to 7, so the largest number becomes −8 and the scale has its opposite sign.
        scale = (largest * step / -8).astype(np.float16)
        divisor = np.where(scale == 0, np.float32(1), scale.astype(np.float32))
        numbers = np.clip(np.rint(blocks / divisor), -8, 7)
        error = np.square(numbers * scale.astype(np.float32) - blocks).sum(axis=-1, keepdims=True)
        if best_error is None:
            best_scale, best_numbers, best_error = scale, numbers, error
            continue
        is_better = error < best_error
        best_scale = np.where(is_better, scale, best_scale)
        best_numbers = np.where(is_better, numbers, best_numbers)
        best_error = np.minimum(error, best_error)
    plain = (best_numbers + 8).astype(np.uint8)
    return plain[..., : WORD_BLOCK // 2] | plain[..., WORD_BLOCK // 2 :] << 4, best_scale
