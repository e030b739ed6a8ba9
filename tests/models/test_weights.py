"""The weights in an ONNX file."""

import numpy as np

from tests.models.tiny_model import build_onnx_graph, make_embedding_table
from wikiholt.models.weights import NibbleTable, convert_to_fp32, read_initializers


def test_the_weights_in_an_onnx_file_are_read_by_name() -> None:
    rows = make_embedding_table()
    tensors = read_initializers(memoryview(build_onnx_graph(rows, pooled=True)))
    assert np.array_equal(tensors["rows"], rows)
    assert tensors["axes"].tolist() == [1]
    assert not tensors["rows"].flags.owndata, "they stay in the file"


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
