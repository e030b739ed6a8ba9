"""Weights in blocks: int8 numbers with one scale per block."""

import io
import json

import numpy as np
import pytest

from wikiholt.embedding.weights import BlockTable, WeightsLayout, extract_int8_tensors, extract_tensors
from wikiholt.errors import ModelCorrupt

ROWS, COLUMNS, BLOCK = 6, 8, 4
NUMBERS = np.random.default_rng(3).integers(-127, 128, (ROWS, COLUMNS), np.int8)
SCALES = np.random.default_rng(4).uniform(0.001, 0.1, (ROWS, COLUMNS // BLOCK)).astype(np.float32)
EXACT = NUMBERS * np.repeat(SCALES, BLOCK, axis=1)
BIAS = np.arange(ROWS, dtype=np.float32)
WEIGHTS = memoryview(b"pack" + BIAS.tobytes() + NUMBERS.tobytes() + SCALES.tobytes())
OFFSET = 4 + BIAS.nbytes


def parse_layout(*quantized: str) -> WeightsLayout:
    location = [OFFSET, OFFSET + NUMBERS.nbytes, ROWS, COLUMNS]
    table = {
        "tensors": {"bias": [[4, ROWS]]},
        "blocks": {"matrix": location, "words": location},
        "block_size": BLOCK,
        "rounded": list(quantized),
        "smoothed": [],
    }
    return WeightsLayout.parse(json.dumps(table).encode())


def test_a_matrix_in_blocks_becomes_fp32_with_a_column_per_output() -> None:
    tensors = extract_tensors(parse_layout("matrix"), WEIGHTS)
    assert tensors["matrix"].dtype == np.float32
    assert np.array_equal(tensors["matrix"], EXACT.T)
    assert np.array_equal(tensors["bias"], BIAS)


def test_a_table_in_blocks_stays_in_int8() -> None:
    tensors = extract_tensors(parse_layout("matrix"), WEIGHTS)
    assert "words" not in tensors
    assert tensors["words.int8"].dtype == np.int8
    assert np.array_equal((tensors["words.int8"] * tensors["words.scale"]).reshape(ROWS, COLUMNS), EXACT)


def test_int8_gives_such_a_matrix_one_scale_per_column() -> None:
    no_smoothing = io.BytesIO()
    np.save(no_smoothing, np.zeros(0, np.float32))
    tensors = extract_int8_tensors(parse_layout("matrix"), WEIGHTS, no_smoothing.getvalue())
    assert tensors["matrix.scale"].shape == (ROWS,)
    assert np.abs(tensors["matrix.int8"] * tensors["matrix.scale"] - EXACT.T).max() <= tensors["matrix.scale"].max() / 2
    assert np.array_equal(tensors["words.int8"], extract_tensors(parse_layout("matrix"), WEIGHTS)["words.int8"])


def test_rows_of_a_table_are_converted_when_they_are_read() -> None:
    tensors = extract_tensors(parse_layout("matrix"), WEIGHTS)
    table = BlockTable(tensors["words.int8"], tensors["words.scale"])
    assert len(table) == ROWS
    assert np.array_equal(table[np.array([4, 1])], EXACT[[4, 1]])
    assert np.array_equal(table[slice(1, None, 2)], EXACT[1::2])
    assert table[np.array([], np.int64)].shape == (0, COLUMNS)


@pytest.mark.parametrize("lost", [1, SCALES.nbytes + 1, NUMBERS.nbytes + SCALES.nbytes + 1])
def test_a_file_shorter_than_its_layout_is_corrupt(lost: int) -> None:
    with pytest.raises(ModelCorrupt, match="shorter") as caught:
        extract_tensors(parse_layout("matrix"), WEIGHTS[:-lost])
    assert "reinstall" in caught.value.hint
