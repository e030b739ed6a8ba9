"""A cascade of sketches: one-bit codes of every row choose thousands, their bytes choose hundreds to score exactly.

The codes are small enough to be scanned in a millisecond; alone they lose neighbours on real text, whose vectors crowd
together, so many rows pass. One byte a dimension is nearly exact, and few rows more than asked for pass it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wikiholt.model import Floats, Ints
from wikiholt.vectors.bits import NEVER, Words, differences, encode, fewest, words_for
from wikiholt.vectors.engine import Array, floats
from wikiholt.vectors.passing import learn_factor, rows_to_pass
from wikiholt.vectors.rows import best

_BLOCK = 16_384
_SCORED = 256


@dataclass(frozen=True, slots=True)
class SketchEngine:
    """As many rows pass the codes as was learnt; `fetch` + `times` · limit pass the bytes and are scored exactly."""

    kind: str = "exact"
    scan_below: int = 20_000
    fetch: int = 50
    times: float = 1.1
    checked: tuple[str, ...] = ("factor", "scales")

    def derive(self, vectors: Floats) -> Iterator[tuple[str, Array]]:
        mean, largest = _mean_and_largest(vectors)
        scales = largest / np.float32(127)
        yield "factor", np.array([learn_factor(vectors, mean)], np.float32)
        yield "scales", scales
        for codes in encode(vectors, mean):
            yield "codes", codes.reshape(-1)
        for start in range(0, len(vectors), _BLOCK):
            yield "bytes", np.rint(vectors[start : start + _BLOCK] / scales).astype(np.int8)

    def finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> "SketchFinder":
        codes = np.frombuffer(sections["codes"], np.uint64)
        rows = np.frombuffer(sections["bytes"], np.int8).reshape(count, dimensions)
        if len(codes) != count * words_for(dimensions):
            raise ValueError("rows and codes differ in number")
        factor = float(floats(sections["factor"], 1)[0])
        return SketchFinder(self, factor, floats(sections["scales"], dimensions), codes, rows)


@dataclass(frozen=True, slots=True)
class SketchFinder:
    """Scans the codes, then scores bytes. The mean adds the same to every row's score, so the query keeps it."""

    engine: SketchEngine
    factor: float
    scales: Floats
    codes: Words
    rows: NDArray[np.int8]

    def find(self, vector: Floats, limit: int, among: Ints | None, skip: Ints) -> Ints:
        found = differences(self.codes, len(self.rows), vector)
        found[skip] = NEVER
        if among is not None:
            found = found[among]
        passed = np.flatnonzero(fewest(found, rows_to_pass(self.factor, limit, len(found))))
        if among is not None:
            passed = among[passed]
        return passed[best(self._scores(vector, passed), self.engine.fetch + int(self.engine.times * limit))]

    def _scores(self, vector: Floats, positions: Ints) -> Floats:
        """Nearly the cosines of these rows, computed in pieces that stay in the processor's cache."""
        weights = vector * self.scales
        scores: Floats = np.empty(len(positions), np.float32)
        for start in range(0, len(positions), _SCORED):
            piece = self.rows[positions[start : start + _SCORED]].astype(np.float32)
            np.vecdot(piece, weights, out=scores[start : start + _SCORED])
        return scores


def _mean_and_largest(vectors: Floats) -> tuple[Floats, Floats]:
    """For each dimension the mean and the largest magnitude, which is never zero."""
    mean, largest = np.zeros(vectors.shape[1]), np.full(vectors.shape[1], np.finfo(np.float32).tiny * 127, np.float32)
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK]
        mean += block.sum(axis=0, dtype=np.float64) / len(vectors)
        np.maximum(largest, np.abs(block).max(axis=0), out=largest)
    return mean.astype(np.float32), largest
