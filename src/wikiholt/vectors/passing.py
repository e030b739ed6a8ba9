"""How many rows must pass the one-bit codes so that hardly a neighbour is lost.

Measured on real text, the number grows with the root of the limit and with the root of the rows. The factor depends on
the vectors, so it is learnt from a sample when a cache is built. Where a few dimensions outweigh all others the codes
say too little at any price: then every row passes, and searching takes as long as scoring a byte a dimension.
"""

import math

import numpy as np

from wikiholt.model import FloatArray
from wikiholt.vectors.bits import count_differences, encode_signs

MIN_PASS_FACTOR = 1.25
"""Enough for queries that are unlike any row: the rows of a sample ask for less (see the bench)."""
MAX_PASS_FACTOR = 4.0
"""Beyond this the codes are not believed."""

_MIN_PASSED_ROWS = 300
_SAMPLE_ROWS, _SAMPLE_QUERIES = 8_000, 40
_TARGET_RECALL = 0.995


def count_candidates(factor: float, limit: int, count: int) -> int:
    """How many of so many rows must pass to hold the `limit` nearest."""
    return count if factor > MAX_PASS_FACTOR else max(count // 50, _MIN_PASSED_ROWS + int(factor * math.sqrt(limit * count)))


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
