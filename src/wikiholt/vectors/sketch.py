"""A cascade of sketches: one-bit codes of every row choose thousands, their bytes choose hundreds to score exactly.

The codes are small enough to be scanned in a millisecond; alone they lose neighbours on real text, whose vectors crowd
together, so many rows pass. One byte a dimension is nearly exact, and few rows more than asked for pass it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikiholt.model import FloatArray, IntArray
from wikiholt.vectors.bits import EXCLUDED_DIFFERENCE, CodeWords, count_differences, encode_signs, select_closest, count_code_words
from wikiholt.vectors.engine import Array, to_float_array
from wikiholt.vectors.passing import estimate_pass_factor, count_candidates
from wikiholt.vectors.rows import select_best

_QUANTIZE_BLOCK_ROWS = 16_384
_SCORE_BLOCK_ROWS = 256


@dataclass(frozen=True, slots=True)
class QuantizedEngine:
    """As many rows pass the codes as was learnt; `fetch` + `times` · limit pass the bytes and are scored exactly."""

    kind: str = "exact"
    scan_max_rows: int = 20_000
    base_candidates: int = 50
    candidate_factor: float = 1.1
    verified_sections: tuple[str, ...] = ("factor", "scales")

    def build_sections(self, vectors: FloatArray) -> Iterator[tuple[str, Array]]:
        mean, largest = _compute_mean_and_max(vectors)
        scales = largest / np.float32(127)
        yield "factor", np.array([estimate_pass_factor(vectors, mean)], np.float32)
        yield "scales", scales
        for codes in encode_signs(vectors, mean):
            yield "codes", codes.reshape(-1)
        for start in range(0, len(vectors), _QUANTIZE_BLOCK_ROWS):
            yield "bytes", np.rint(vectors[start : start + _QUANTIZE_BLOCK_ROWS] / scales).astype(np.int8)

    def open_finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> "QuantizedFinder":
        codes = np.frombuffer(sections["codes"], np.uint64)
        rows = np.frombuffer(sections["bytes"], np.int8).reshape(count, dimensions)
        if len(codes) != count * count_code_words(dimensions):
            raise ValueError("rows and codes differ in number")
        factor = float(to_float_array(sections["factor"], 1)[0])
        return QuantizedFinder(self, factor, to_float_array(sections["scales"], dimensions), codes, rows)


@dataclass(frozen=True, slots=True)
class QuantizedFinder:
    """Scans the codes, then scores bytes. The mean adds the same to every row's score, so the query keeps it."""

    engine: QuantizedEngine
    pass_factor: float
    scales: FloatArray
    codes: CodeWords
    quantized_rows: NDArray[np.int8]

    def find(self, vector: FloatArray, limit: int, allowed_rows: IntArray | None, excluded_rows: IntArray) -> IntArray:
        found = count_differences(self.codes, len(self.quantized_rows), vector)
        found[excluded_rows] = EXCLUDED_DIFFERENCE
        if allowed_rows is not None:
            found = found[allowed_rows]
        passed = np.flatnonzero(select_closest(found, count_candidates(self.pass_factor, limit, len(found))))
        if allowed_rows is not None:
            passed = allowed_rows[passed]
        return passed[select_best(self._score_approximately(vector, passed), self.engine.base_candidates + int(self.engine.candidate_factor * limit))]

    def _score_approximately(self, vector: FloatArray, positions: IntArray) -> FloatArray:
        """Nearly the cosines of these rows, computed in pieces that stay in the processor's cache."""
        weights = vector * self.scales
        scores: FloatArray = np.empty(len(positions), np.float32)
        for start in range(0, len(positions), _SCORE_BLOCK_ROWS):
            piece = self.quantized_rows[positions[start : start + _SCORE_BLOCK_ROWS]].astype(np.float32)
            np.vecdot(piece, weights, out=scores[start : start + _SCORE_BLOCK_ROWS])
        return scores


def _compute_mean_and_max(vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each dimension the mean and the largest magnitude, which is never zero."""
    mean, largest = np.zeros(vectors.shape[1]), np.full(vectors.shape[1], np.finfo(np.float32).tiny * 127, np.float32)
    for start in range(0, len(vectors), _QUANTIZE_BLOCK_ROWS):
        block = vectors[start : start + _QUANTIZE_BLOCK_ROWS]
        mean += block.sum(axis=0, dtype=np.float64) / len(vectors)
        np.maximum(largest, np.abs(block).max(axis=0), out=largest)
    return mean.astype(np.float32), largest
