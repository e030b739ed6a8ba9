"""A vector cache for large wikis: FAISS guesses the nearest rows by four-bit product codes, exact scores decide.

Clustered and graph indexes lose neighbours on real text; flat codes that are scanned fast do not (see the bench).
"""

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wikiholt.cachefile.faults import CacheBroken
from wikiholt.errors import MissingExtra
from wikiholt.model import Floats, Ints
from wikiholt.ports import WikiIndex
from wikiholt.vectors.added import contains
from wikiholt.vectors.derived import DerivedCache
from wikiholt.vectors.engine import Array

_SAMPLE = 50_000
_BLOCK = 65_536


def require_faiss() -> Any:
    """The faiss module; raises MissingExtra when it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise MissingExtra("FAISS is not installed.", hint='pip install "wikiholt[faiss]"') from error


def subspaces(dimensions: int) -> int:
    """How many four-bit codes a vector gets: one for every two dimensions."""
    return dimensions // 2 if dimensions % 2 == 0 else dimensions


def _one_thread(faiss: Any) -> None:
    # OpenMP keeps this per thread. A forked child hangs if its parent ever used more than one.
    faiss.omp_set_num_threads(1)


@dataclass(frozen=True, slots=True)
class FaissEngine:
    """Flat product codes, scanned whole; `fetch` and `times` say how many rows are then scored exactly."""

    kind: str = "faiss"
    scan_below: int = 20_000
    fetch: int = 400
    times: int = 4
    checked: tuple[str, ...] = ("codes",)

    def derive(self, vectors: Floats) -> Iterator[tuple[str, Array]]:
        faiss = require_faiss()
        _one_thread(faiss)
        dimensions = vectors.shape[1]
        index = faiss.index_factory(dimensions, f"PQ{subspaces(dimensions)}x4fs", faiss.METRIC_INNER_PRODUCT)
        index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // _SAMPLE)]))
        for start in range(0, len(vectors), _BLOCK):
            index.add(np.ascontiguousarray(vectors[start : start + _BLOCK]))
        yield "codes", faiss.serialize_index(index)

    def finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> "FaissFinder":
        faiss = require_faiss()
        try:
            index = faiss.deserialize_index(np.frombuffer(sections["codes"], np.uint8))
        except RuntimeError as error:
            raise CacheBroken("FAISS cannot read the codes of the vector cache.") from error
        if (index.ntotal, index.d) != (count, dimensions):
            raise CacheBroken("The codes of the vector cache belong to other vectors.")
        return FaissFinder(faiss, index, self.fetch, self.times)


@dataclass(frozen=True, slots=True)
class FaissFinder:
    """Asks FAISS for more and more rows until enough of them may compete."""

    faiss: Any
    index: Any
    fetch: int
    times: int

    def find(self, vector: Floats, limit: int, among: Ints | None, skip: Ints) -> Ints:
        _one_thread(self.faiss)
        total = int(self.index.ntotal)
        room = total - len(skip) if among is None else len(among)
        wanted = min(self.fetch + self.times * limit, room)
        allowed = None if among is None else np.sort(among)
        asked = min(total, wanted + len(skip) if allowed is None else 2 * wanted * total // max(1, room))
        while True:
            found = self._ask(vector, asked)
            found = found[~contains(skip, found)] if allowed is None else found[contains(allowed, found)]
            if len(found) >= wanted or asked >= total:
                return found
            asked = min(total, 4 * asked)

    def _ask(self, vector: Floats, count: int) -> Ints:
        _, rows = self.index.search(np.ascontiguousarray(vector)[None], count)
        positions: Ints = rows[0]
        return positions[positions >= 0]


class FaissCache(DerivedCache):
    """The same contract as the exact cache, for wikis whose scan would take too long."""

    def __init__(
        self,
        index: WikiIndex,
        directory: Path,
        *,
        background: bool = True,
        build_at_once: int = 20_000,
        engine: FaissEngine | None = None,
    ) -> None:
        require_faiss()
        super().__init__(index, directory, engine or FaissEngine(), background=background, build_at_once=build_at_once)
