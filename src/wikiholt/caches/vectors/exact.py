"""One-bit codes of vectors: for every dimension whether a row lies above the mean, 64 dimensions to a word.

A row's score is guessed by the signs on which it differs from the query. Only the dimensions that weigh most in the
query are compared: the others add more noise than knowledge (see the bench).
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.vectors.cache_state import Array, to_float_array
from wikiholt.caches.vectors.vector_cache import FileVectorCache
from wikiholt.caches.vectors.vector_rows import select_best
from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.domain.storage_protocols import WikiIndex

CodeWords = NDArray[np.uint64]
BitDifferences = NDArray[np.uint8]

CODE_BLOCK_ROWS = 32_768
EXCLUDED_DIFFERENCE = 255
"""More differences than any row can have: marks rows that must not be found."""


def count_code_words(dimensions: int) -> int:
    """How many words hold the code of one row."""
    return -(-dimensions // 64)


def pack_bits(bits: NDArray[np.bool_]) -> CodeWords:
    """The codes of rows of bits, one row of words each; missing bits are zero."""
    missing = 64 * count_code_words(bits.shape[1]) - bits.shape[1]
    return np.packbits(np.pad(bits, ((0, 0), (0, missing))), axis=1).view(np.uint64)


def encode_signs(vectors: FloatArray, mean: FloatArray) -> Iterator[CodeWords]:
    """The codes block by block, each block word by word, so that a scan reads every word in one run."""
    for start in range(0, len(vectors), CODE_BLOCK_ROWS):
        yield np.ascontiguousarray(pack_bits(vectors[start : start + CODE_BLOCK_ROWS] > mean).T)


def count_differences(codes: CodeWords, count: int, vector: FloatArray) -> BitDifferences:
    """For each row on how many of the query's weightiest dimensions its sign differs."""
    weights = np.abs(vector)
    weighty = min(max(1, len(vector) // 2), EXCLUDED_DIFFERENCE - 1)
    chosen = np.zeros(len(vector), np.bool_)
    chosen[np.argpartition(weights, -weighty)[-weighty:]] = True
    signs, mask = pack_bits((vector > 0)[None])[0], pack_bits(chosen[None])[0]
    found: BitDifferences = np.empty(count, np.uint8)
    differing, counted = (
        np.empty(min(CODE_BLOCK_ROWS, count), np.uint64),
        np.empty(min(CODE_BLOCK_ROWS, count), np.uint8),
    )
    for start in range(0, count, CODE_BLOCK_ROWS):
        length = min(CODE_BLOCK_ROWS, count - start)
        block = codes[start * len(signs) : (start + length) * len(signs)].reshape(len(signs), length)
        total, here, number = found[start : start + length], differing[:length], counted[:length]
        for at, word in enumerate(block):
            np.bitwise_xor(word, signs[at], out=here)
            np.bitwise_and(here, mask[at], out=here)
            np.bitwise_count(here, out=number if at else total)
            if at:
                np.add(total, number, out=total)
    return found


def select_closest(differences: BitDifferences, count: int) -> NDArray[np.bool_]:
    """Which rows differ least: so many, and all that differ as little as the last of them; never one marked."""
    if count >= len(differences):
        return differences < EXCLUDED_DIFFERENCE
    # Words of sixteen bits are partitioned ten times faster than bytes.
    most = int(np.partition(differences.astype(np.uint16), count - 1)[count - 1]) if count > 0 else -1
    return differences <= min(most, EXCLUDED_DIFFERENCE - 1)


# How many rows must pass the one-bit codes so that hardly a neighbour is lost. Measured on real text, the number
# grows with the root of the limit and with the root of the rows. The factor depends on the vectors, so it is learnt
# from a sample when a cache is built. Where a few dimensions outweigh all others the codes say too little at any
# price: then every row passes, and searching takes as long as scoring a byte a dimension.


MIN_PASS_FACTOR = 1.25
"""Enough for queries that are unlike any row: the rows of a sample ask for less (see the bench)."""
MAX_PASS_FACTOR = 4.0
"""Beyond this the codes are not believed."""

_MIN_PASSED_ROWS = 300
_SAMPLE_ROWS, _SAMPLE_QUERIES = 8_000, 40
_TARGET_RECALL = 0.995


def count_candidates(factor: float, limit: int, count: int) -> int:
    """How many of so many rows must pass to hold the `limit` nearest."""
    return (
        count
        if factor > MAX_PASS_FACTOR
        else max(count // 50, _MIN_PASSED_ROWS + int(factor * math.sqrt(limit * count)))
    )


def estimate_pass_factor(vectors: FloatArray, mean: FloatArray) -> float:
    """The factor by which the rows of a sample find their nearest ten and hundred in it."""
    sample = np.ascontiguousarray(vectors[:: -(-len(vectors) // _SAMPLE_ROWS)])
    codes = np.concatenate([block.reshape(-1) for block in encode_signs(sample, mean)])
    depths = [min(depth, len(sample)) for depth in (10, 100)]
    needed: list[list[int]] = [[] for _ in depths]
    for vector in sample[:: -(-len(sample) // _SAMPLE_QUERIES)]:
        nearest = np.argsort(-np.vecdot(sample, vector), kind="stable")
        found = count_differences(codes, len(sample), vector)
        up_to = np.cumsum(np.bincount(found))
        for depth, rows in zip(depths, needed, strict=True):
            rows.extend(up_to[found[nearest[:depth]]].tolist())
    factors = [
        (float(np.quantile(rows, _TARGET_RECALL)) - _MIN_PASSED_ROWS) / math.sqrt(depth * len(sample))
        for depth, rows in zip(depths, needed, strict=True)
    ]
    return max(MIN_PASS_FACTOR, *factors)


# A cascade of sketches: one-bit codes of every row choose thousands, their bytes choose hundreds to score exactly.
# The codes are small enough to be scanned in a millisecond; alone they lose neighbours on real text, whose vectors
# crowd together, so many rows pass. One byte a dimension is nearly exact, and few rows more than asked for pass it.


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
        return passed[
            select_best(
                self._score_approximately(vector, passed),
                self.engine.base_candidates + int(self.engine.candidate_factor * limit),
            )
        ]

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


# The default vector cache: every row scanned while there are few, sketches of every row when there are many.


class ExactVectorCache(FileVectorCache):
    """Nearest chunks by exact scores, of which sketches may miss one in a hundred; needs nothing but numpy."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        *,
        background: bool = True,
        inline_build_rows: int = 20_000,
        engine: QuantizedEngine | None = None,
    ) -> None:
        super().__init__(
            index, directory, engine or QuantizedEngine(), background=background, inline_build_rows=inline_build_rows
        )
