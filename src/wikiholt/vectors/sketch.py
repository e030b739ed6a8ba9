"""A sketch of the vectors: their coordinates along the directions in which they differ most.

One-bit codes are faster to scan but lose neighbours on real text, whose vectors crowd together (see the bench): the
first third of the principal directions keeps four fifths of the variance and misses few rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from wikiholt.model import Floats, Ints
from wikiholt.vectors.engine import Array, floats
from wikiholt.vectors.rows import best

_SAMPLE = 20_000
_BLOCK = 16_384


def directions(vectors: Floats, count: int) -> Floats:
    """The directions of greatest variance, one a column, learnt from an even sample of the rows."""
    sample = np.asarray(vectors[:: max(1, len(vectors) // _SAMPLE)], np.float64)
    centred = sample - sample.mean(axis=0)
    _, axes = np.linalg.eigh(centred.T @ centred)
    return np.ascontiguousarray(axes[:, ::-1][:, :count], np.float32)


@dataclass(frozen=True, slots=True)
class SketchEngine:
    """Sketches of `dimensions // share` coordinates; `fetch` and `times` say how many rows are scored exactly."""

    kind: str = "exact"
    scan_below: int = 20_000
    share: int = 3
    fetch: int = 1_000
    times: int = 8
    checked: tuple[str, ...] = ("axes",)

    def derive(self, vectors: Floats) -> Iterator[tuple[str, Array]]:
        axes = directions(vectors, max(1, vectors.shape[1] // self.share))
        yield "axes", axes
        for start in range(0, len(vectors), _BLOCK):
            yield "sketch", vectors[start : start + _BLOCK] @ axes

    def finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> "SketchFinder":
        axes = floats(sections["axes"], dimensions, -1)
        return SketchFinder(axes, floats(sections["sketch"], count, axes.shape[1]), self.fetch, self.times)


@dataclass(frozen=True, slots=True)
class SketchFinder:
    """Scans the sketch. The mean of the vectors need not be known: it adds the same to every row's score."""

    axes: Floats
    sketch: Floats
    fetch: int
    times: int

    def find(self, vector: Floats, limit: int, among: Ints | None, skip: Ints) -> Ints:
        wanted = self.fetch + self.times * limit
        short = np.ascontiguousarray(vector @ self.axes)
        if among is None:
            scores = np.vecdot(self.sketch, short)
            scores[skip] = -np.inf
            return best(scores, wanted)
        if len(among) * 4 > len(self.sketch):
            return among[best(np.vecdot(self.sketch, short)[among], wanted)]
        return among[best(np.vecdot(self.sketch[among], short), wanted)]
