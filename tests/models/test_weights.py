"""The weights in an ONNX file, and matrices that are rounded to int8 when a model is loaded."""

import io
import json

import numpy as np
import pytest

from tests.models.tiny_model import build_onnx_graph, make_embedding_table
from wikiholt.errors import ModelCorrupt
from wikiholt.models.weights import (
    NibbleTable,
    WeightsLayout,
    convert_to_fp32,
    extract_int8_tensors,
    extract_tensors,
    read_initializers,
)

ROWS, COLUMNS = 6, 8
EXACT = np.random.default_rng(3).normal(size=(ROWS, COLUMNS)).astype(np.float32)
BIAS = np.arange(ROWS, dtype=np.float32)
WEIGHTS = memoryview(b"pack" + BIAS.tobytes() + EXACT.tobytes())


def parse_layout() -> WeightsLayout:
    tensors = {"bias": [[4, ROWS]], "matrix": [[4 + BIAS.nbytes, ROWS, COLUMNS]]}
    return WeightsLayout.parse(json.dumps({"tensors": tensors, "rounded": ["matrix"], "smoothed": []}).encode())


def test_the_weights_in_an_onnx_file_are_read_by_name() -> None:
    rows = make_embedding_table()
    tensors = read_initializers(memoryview(build_onnx_graph(rows, pooled=True)))
    assert np.array_equal(tensors["rows"], rows)
    assert tensors["axes"].tolist() == [1]
    assert not tensors["rows"].flags.owndata, "they stay in the file"


def test_int8_gives_a_matrix_one_scale_per_column() -> None:
    no_smoothing = io.BytesIO()
    np.save(no_smoothing, np.zeros(0, np.float32))
    tensors = extract_int8_tensors(parse_layout(), WEIGHTS, no_smoothing.getvalue())
    assert tensors["matrix.scale"].shape == (COLUMNS,)
    assert np.array_equal(tensors["bias"], BIAS)
    assert np.abs(convert_to_fp32(tensors)["matrix"] - EXACT).max() <= tensors["matrix.scale"].max() / 2 * 1.001


def test_a_smoothed_matrix_is_restored() -> None:
    smooth = np.array([0.5, 2], np.float32)
    tensors = {"m.int8": np.array([[2, 4], [6, 8]], np.int8), "m.scale": np.ones(2, np.float32), "m.smooth": smooth}
    assert convert_to_fp32(tensors)["m"].tolist() == [[1, 2], [12, 16]]


def test_rows_of_a_table_in_4_bits_are_converted_when_they_are_read() -> None:
    pairs = np.arange(2 * 16, dtype=np.uint8).reshape(2, 1, 16)
    table = NibbleTable(pairs, np.array([[[1]], [[2]]], np.float16))
    assert len(table) == 2
    assert table[np.array([1])].tolist() == [[2.0 * (n - 8) for n in range(16)] + [2.0 * (1 - 8)] * 16]
    assert table[np.array([], np.int64)].shape == (0, 32)


@pytest.mark.parametrize("lost", [1, EXACT.nbytes + 1])
def test_a_file_shorter_than_its_layout_is_corrupt(lost: int) -> None:
    with pytest.raises(ModelCorrupt, match="shorter") as caught:
        extract_tensors(parse_layout(), WEIGHTS[:-lost])
    assert "reinstall" in caught.value.hint
