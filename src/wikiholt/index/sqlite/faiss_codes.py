"""FAISS, for very large wikis: four-bit product codes find candidates, which are then scored exactly.

Clustered and graph indexes lose neighbours on real text; a fast scan of flat codes does not (see the bench).
"""

import importlib
import importlib.util
import logging
from typing import Any, ClassVar

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray
from wikiholt.errors import MissingDependency, make_extra_hint
from wikiholt.index.sqlite.vector_codes import Array, MappedFile, QuantizedCodes, VectorCodes
from wikiholt.index.sqlite.vector_file import VectorFile
from wikiholt.index.sqlite.vectors import CodesChoice

_LOG = logging.getLogger(__name__)

_TRAINING_ROWS = 50_000
_ADD_BLOCK_ROWS = 65_536
_BASE_CANDIDATES, _CANDIDATE_FACTOR = 400, 4
"""How many rows are scored exactly: a number, and this many times the limit."""


def import_faiss() -> Any:
    """The faiss module. Raises MissingDependency if it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise MissingDependency("FAISS is not installed.", hint=make_extra_hint("faiss")) from error


def count_subspaces(dimensions: int) -> int:
    """The number of four-bit codes of a vector: one for every two dimensions."""
    return dimensions // 2 if dimensions % 2 == 0 else dimensions


def _use_one_thread(faiss: Any) -> None:
    # OpenMP stores this per thread. A forked child hangs if its parent ever used more than one thread.
    faiss.omp_set_num_threads(1)


class FaissCodes:
    """Queries FAISS for more and more rows until enough of them are allowed."""

    kind: ClassVar[str] = "faiss"

    def __init__(self, faiss: Any, index: Any) -> None:
        self._faiss = faiss
        self._index = index
        self.row_count = int(index.ntotal)
        self.is_useful = True

    @classmethod
    def encode(cls, vectors: VectorFile, count: int, chunks: IntArray) -> dict[str, Array]:  # noqa: ARG003
        faiss = import_faiss()
        _use_one_thread(faiss)
        dimensions = vectors.dimensions
        index = faiss.index_factory(dimensions, f"PQ{count_subspaces(dimensions)}x4fs", faiss.METRIC_INNER_PRODUCT)
        index.train(vectors.sample(np.arange(0, count, max(1, count // _TRAINING_ROWS))))
        for block in vectors.iter_vectors(count, _ADD_BLOCK_ROWS):
            index.add(block)
        return {"codes": faiss.serialize_index(index)}

    @classmethod
    def decode(cls, file: MappedFile, count: int, dimensions: int) -> "FaissCodes":
        faiss = import_faiss()
        try:
            index = faiss.deserialize_index(file.arrays["codes"])
        except RuntimeError as error:
            raise ValueError("FAISS cannot read the codes") from error
        if (index.ntotal, index.d) != (count, dimensions):
            raise ValueError("the codes belong to other vectors")
        return cls(faiss, index)

    def is_complete(self) -> bool:
        return True  # the codes were copied

    def find(self, vector: FloatArray, limit: int, allowed: IntArray | None, excluded: IntArray) -> IntArray:
        _use_one_thread(self._faiss)
        total = self.row_count
        available = total - len(excluded) if allowed is None else len(allowed)
        needed = min(_BASE_CANDIDATES + _CANDIDATE_FACTOR * limit, available)
        count = needed + len(excluded) if allowed is None else 2 * needed * total // max(1, available)
        count = min(total, count)
        while True:
            _, found = self._index.search(np.ascontiguousarray(vector)[None], count)
            slots: IntArray = found[0][found[0] >= 0]
            slots = slots[~np.isin(slots, excluded)] if allowed is None else slots[np.isin(slots, allowed)]
            if len(slots) >= needed or count >= total:
                return slots
            count = min(total, 4 * count)


def make_codes_choice(kind: str, faiss_min_rows: int) -> CodesChoice:
    """The choice of the setting `vectors`: `faiss`, or `auto` with FAISS for more than `faiss_min_rows` rows.

    Raises MissingDependency if FAISS is required and not installed.
    """
    if kind == "faiss":
        import_faiss()
        return lambda _: FaissCodes

    def choose(rows: int) -> type[VectorCodes]:
        if kind != "auto" or rows <= faiss_min_rows:
            return QuantizedCodes
        if importlib.util.find_spec("faiss") is not None:
            return FaissCodes
        _LOG.info("%s vectors would be searched faster with FAISS: %s", f"{rows:,}", make_extra_hint("faiss"))
        return QuantizedCodes

    return choose
