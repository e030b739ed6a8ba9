"""The default vector cache: it scores every row of a small index, and quantized candidates of a large one.

One-bit codes of every row select thousands of candidates, one-byte codes select hundreds of those, and the hundreds are
scored exactly. The one-bit codes can be scanned in a millisecond. Alone they lose neighbours, because the vectors of
real text are close together, and many rows pass. One byte per dimension is nearly exact.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.vectors.cache_state import Array, select_best, to_float_array
from wikiholt.caches.vectors.vector_cache import FileVectorCache
from wikiholt.domain.index import FloatArray, IntArray

CodeWords = NDArray[np.uint64]
BitDifferences = NDArray[np.uint8]

CODE_BLOCK_ROWS = 32_768
EXCLUDED_DIFFERENCE = 255
"""Marks excluded rows; no row can differ in this many dimensions."""

MIN_PASS_FACTOR = 1.25
"""Sufficient for queries unlike any row; the rows of a sample need less (see the bench)."""
MAX_PASS_FACTOR = 4.0
"""Above this factor the one-bit codes are not used."""

_MIN_PASSED_ROWS = 300
_THRESHOLD_SAMPLE_EVERY_ROWS = 37
"""An odd number, so that the sample does not follow the structure of pages."""
_SAMPLE_ROWS, _SAMPLE_QUERIES = 8_000, 40
_TARGET_RECALL = 0.995
_QUANTIZE_BLOCK_ROWS = 16_384
_SCORE_BLOCK_ROWS = 256


# One-bit codes: one bit per dimension, set if the value is above the mean, 64 per word. The score of a row is
# estimated by the number of bits that differ from the query. Only the dimensions with the largest magnitudes in the
# query are compared: the others add more noise than information (see the bench).


def count_code_words(dimensions: int) -> int:
    """Return the number of words in the code of one row."""
    return -(-dimensions // 64)


def pack_bits(bits: NDArray[np.bool_]) -> CodeWords:
    """Pack rows of bits into rows of words, padded with zeros."""
    padding = 64 * count_code_words(bits.shape[1]) - bits.shape[1]
    return np.packbits(np.pad(bits, ((0, 0), (0, padding))), axis=1).view(np.uint64)


def encode_signs(vectors: FloatArray, mean: FloatArray) -> Iterator[CodeWords]:
    """Yield the codes in blocks, each transposed so that a scan reads every word position sequentially."""
    for start in range(0, len(vectors), CODE_BLOCK_ROWS):
        yield np.ascontiguousarray(pack_bits(vectors[start : start + CODE_BLOCK_ROWS] > mean).T)


def count_differences(codes: CodeWords, count: int, vector: FloatArray) -> BitDifferences:
    """Return for each row the number of differing signs in the query's largest dimensions."""
    weights = np.abs(vector)
    compared_count = min(max(1, len(vector) // 2), EXCLUDED_DIFFERENCE - 1)
    compared = np.zeros(len(vector), np.bool_)
    compared[np.argpartition(weights, -compared_count)[-compared_count:]] = True
    signs, mask = pack_bits((vector > 0)[None])[0], pack_bits(compared[None])[0]
    differences: BitDifferences = np.empty(count, np.uint8)
    block_rows = min(CODE_BLOCK_ROWS, count)
    bit_buffer, count_buffer = np.empty(block_rows, np.uint64), np.empty(block_rows, np.uint8)
    for start in range(0, count, CODE_BLOCK_ROWS):
        length = min(CODE_BLOCK_ROWS, count - start)
        block = codes[start * len(signs) : (start + length) * len(signs)].reshape(len(signs), length)
        total, bits, word_total = differences[start : start + length], bit_buffer[:length], count_buffer[:length]
        for position, word in enumerate(block):
            np.bitwise_xor(word, signs[position], out=bits)
            np.bitwise_and(bits, mask[position], out=bits)
            np.bitwise_count(bits, out=word_total if position else total)
            if position:
                np.add(total, word_total, out=total)
    return differences


def select_closest(differences: BitDifferences, count: int) -> NDArray[np.bool_]:
    """Return a mask of the `count` rows that differ least and all ties with the last, without excluded rows."""
    if count >= len(differences):
        return differences < EXCLUDED_DIFFERENCE
    if count <= 0:
        return np.zeros(len(differences), np.bool_)
    # There are few different values: counting the rows up to one takes a tenth of the time of a partition. A sample
    # tells where to begin.
    sample = np.bincount(differences[::_THRESHOLD_SAMPLE_EVERY_ROWS])
    wanted = count * int(sample.sum()) // len(differences)
    most = int(np.searchsorted(np.cumsum(sample), wanted, side="right"))
    mask: NDArray[np.bool_] = differences <= most
    if np.count_nonzero(mask) >= count:
        while most and np.count_nonzero(smaller := differences <= most - 1) >= count:
            mask, most = smaller, most - 1
    else:
        while np.count_nonzero(mask) < count:
            most += 1
            mask = differences <= most
    return mask if most < EXCLUDED_DIFFERENCE else differences < EXCLUDED_DIFFERENCE


# The number of rows that must pass the one-bit codes for the target recall. Measured on real text, it grows with the
# square root of the limit and of the row count. The factor depends on the vectors, so it is estimated from a sample
# when a cache is built. If a few dimensions dominate, the codes carry too little information: every row passes, and
# a search costs as much as scoring one byte per dimension.


def count_candidates(factor: float, limit: int, count: int) -> int:
    """Return how many of `count` rows must pass to include the `limit` nearest."""
    if factor > MAX_PASS_FACTOR:
        return count
    return max(count // 50, _MIN_PASSED_ROWS + int(factor * math.sqrt(limit * count)))


def estimate_pass_factor(vectors: FloatArray, mean: FloatArray) -> float:
    """Estimate the factor at which the rows of a sample find their nearest 10 and 100 rows."""
    sample = np.ascontiguousarray(vectors[:: -(-len(vectors) // _SAMPLE_ROWS)])
    codes = np.concatenate([block.reshape(-1) for block in encode_signs(sample, mean)])
    depths = [min(depth, len(sample)) for depth in (10, 100)]
    needed: list[list[int]] = [[] for _ in depths]
    for vector in sample[:: -(-len(sample) // _SAMPLE_QUERIES)]:
        nearest = np.argsort(-np.vecdot(sample, vector), kind="stable")
        differences = count_differences(codes, len(sample), vector)
        passed_counts = np.cumsum(np.bincount(differences))
        for depth, rows in zip(depths, needed, strict=True):
            rows.extend(passed_counts[differences[nearest[:depth]]].tolist())
    factors = [
        (float(np.quantile(rows, _TARGET_RECALL)) - _MIN_PASSED_ROWS) / math.sqrt(depth * len(sample))
        for depth, rows in zip(depths, needed, strict=True)
    ]
    return max(MIN_PASS_FACTOR, *factors)


@dataclass(frozen=True, slots=True)
class QuantizedEngine:
    """Builds the codes. `base_candidates` + `candidate_factor` · limit rows pass the bytes and are scored exactly."""

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
            raise ValueError("the number of rows and codes differs")
        factor = float(to_float_array(sections["factor"], 1)[0])
        return QuantizedFinder(self, factor, to_float_array(sections["scales"], dimensions), codes, rows)


@dataclass(frozen=True, slots=True)
class QuantizedFinder:
    """Scans the codes, then scores bytes. The mean adds a constant to every score, so it is not subtracted."""

    engine: QuantizedEngine
    pass_factor: float
    scales: FloatArray
    codes: CodeWords
    quantized_rows: NDArray[np.int8]

    def find(self, vector: FloatArray, limit: int, allowed_rows: IntArray | None, excluded_rows: IntArray) -> IntArray:
        differences = count_differences(self.codes, len(self.quantized_rows), vector)
        differences[excluded_rows] = EXCLUDED_DIFFERENCE
        if allowed_rows is not None:
            differences = differences[allowed_rows]
        pass_count = count_candidates(self.pass_factor, limit, len(differences))
        passed = np.flatnonzero(select_closest(differences, pass_count))
        if allowed_rows is not None:
            passed = allowed_rows[passed]
        candidate_count = self.engine.base_candidates + int(self.engine.candidate_factor * limit)
        return passed[select_best(self._score_approximately(vector, passed), candidate_count)]

    def _score_approximately(self, vector: FloatArray, positions: IntArray) -> FloatArray:
        """Return approximate cosines of these rows, computed in blocks that fit the processor cache."""
        weights = vector * self.scales
        scores: FloatArray = np.empty(len(positions), np.float32)
        block_rows = min(_SCORE_BLOCK_ROWS, len(positions))
        byte_buffer = np.empty((block_rows, len(vector)), np.int8)
        float_buffer = np.empty((block_rows, len(vector)), np.float32)
        for start in range(0, len(positions), _SCORE_BLOCK_ROWS):
            block = positions[start : start + _SCORE_BLOCK_ROWS]
            quantized, rows = byte_buffer[: len(block)], float_buffer[: len(block)]
            # In half of the time of `quantized_rows[block]`; with "clip", into the buffer without another copy.
            np.take(self.quantized_rows, block, axis=0, out=quantized, mode="clip")
            rows[...] = quantized
            np.dot(rows, weights, out=scores[start : start + len(block)])
        return scores


def _compute_mean_and_max(vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the largest magnitude (never zero) of each dimension."""
    mean, largest = np.zeros(vectors.shape[1]), np.full(vectors.shape[1], np.finfo(np.float32).tiny * 127, np.float32)
    for start in range(0, len(vectors), _QUANTIZE_BLOCK_ROWS):
        block = vectors[start : start + _QUANTIZE_BLOCK_ROWS]
        mean += block.sum(axis=0, dtype=np.float64) / len(vectors)
        np.maximum(largest, np.abs(block).max(axis=0), out=largest)
    return mean.astype(np.float32), largest


class ExactVectorCache(FileVectorCache):
    """Nearest chunks by exact scores; in a large index the codes may miss one in a hundred. Needs only numpy."""

    _make_engine = QuantizedEngine
