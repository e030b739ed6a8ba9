"""Weights of 4-bit numbers in blocks of 32, and the unigram tokenizer in the same file."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest

from tests.models.tiny_model import write_model
from wikiholt.errors import ModelCorrupt
from wikiholt.models import load_embedder
from wikiholt.models.tokenizer import build_unigram_tokenizer
from wikiholt.models.weights import NIBBLE_BLOCK_SIZE as BLOCK_SIZE
from wikiholt.models.weights import NibbleTable, WeightsLayout, extract_tensors

ROWS, COLUMNS = 3, 2 * BLOCK_SIZE
NUMBERS = np.random.default_rng(5).integers(-8, 8, (ROWS, COLUMNS))
SCALES = np.random.default_rng(6).uniform(0.01, 1, (ROWS, 2)).astype(np.float16)
EXACT = (NUMBERS * np.repeat(SCALES.astype(np.float32), BLOCK_SIZE, axis=1)).astype(np.float32)
PIECES = {"<s>": 0, "<pad>": 0, "</s>": 0, "<unk>": 0, "▁": -4, "▁the": -3, "▁cat": -5, "s": -5, "é": -6, "▁caf": -7}


def pack(numbers: np.ndarray, scales: np.ndarray) -> bytes:
    data = b""
    for row, of_row in zip(numbers + 8, scales, strict=True):
        for block, scale in zip(row.reshape(-1, BLOCK_SIZE), of_row, strict=True):
            first, last = block[: BLOCK_SIZE // 2], block[BLOCK_SIZE // 2 :]
            data += scale.tobytes() + bytes((first | last << 4).astype(np.uint8))
    return data


WEIGHTS = memoryview(b"pack" + pack(NUMBERS, SCALES))


def pack_tokenizer() -> bytes:
    encoded = [piece.encode() for piece in PIECES]
    ends = np.cumsum([0, *map(len, encoded)]).astype("<u4")
    scores = np.array(list(PIECES.values()), "<f4")
    header = struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(ends[-1]))
    return header + ends.tobytes() + scores.tobytes() + b"".join(encoded) + b"a table that is not read"


def parse_layout() -> WeightsLayout:
    whole = [4, ROWS, COLUMNS]
    nibbles = {"matrix": [whole, whole], "words": [whole]}
    table = {"tensors": {}, "nibbles": nibbles, "rounded": ["matrix"], "smoothed": []}
    return WeightsLayout.parse(json.dumps(table).encode())


def test_the_parts_of_a_matrix_become_fp32_with_a_column_per_output() -> None:
    matrix = extract_tensors(parse_layout(), WEIGHTS)["matrix"]
    assert matrix.dtype == np.float32
    assert np.array_equal(matrix, np.concatenate([EXACT, EXACT]).T)


def test_a_table_of_words_stays_in_four_bits_and_its_rows_are_converted_when_they_are_read() -> None:
    tensors = extract_tensors(parse_layout(), WEIGHTS)
    assert (tensors["words.pairs"].dtype, tensors["words.pairs"].shape) == (np.uint8, (ROWS, 2, BLOCK_SIZE // 2))
    assert np.array_equal(tensors["words.scale"][..., 0], SCALES)
    table = NibbleTable.read(WEIGHTS, 4, ROWS, COLUMNS)
    assert len(table) == ROWS
    assert np.array_equal(table[np.array([2, 0])], EXACT[[2, 0]])
    assert np.array_equal(table[slice(1, None)], EXACT[1:])


def test_a_file_shorter_than_its_layout_is_corrupt() -> None:
    with pytest.raises(ModelCorrupt, match="shorter") as caught:
        extract_tensors(parse_layout(), WEIGHTS[:-1])
    assert "reinstall" in caught.value.hint


def test_the_tokenizer_marks_words_composes_accents_and_ignores_further_spaces() -> None:
    tokenizer = build_unigram_tokenizer(pack_tokenizer())
    encoding = tokenizer.encode("the\u00a0 cats  cafe\u0301")
    assert encoding.tokens == ["<s>", "▁the", "▁cat", "s", "▁caf", "é", "</s>"]
    assert [start for start, _ in encoding.offsets[1:-1]] == [0, 5, 8, 11, 14]
    assert tokenizer.encode("", add_special_tokens=False).ids == []


def test_a_tokenizer_cut_short_or_of_an_unknown_format_is_corrupt(tmp_path: Path) -> None:
    files = {"pack": pack_tokenizer()[:60]}
    with pytest.raises(ModelCorrupt, match="tokenizer of tiny cannot be loaded"):
        load_embedder(write_model(tmp_path / "a", files=files, tokenizer="pack", tokenizer_format="unigram"))
    with pytest.raises(ModelCorrupt, match="tokenizer_format is 'sentencepiece', not one of json, unigram"):
        load_embedder(write_model(tmp_path / "b", tokenizer_format="sentencepiece"))
