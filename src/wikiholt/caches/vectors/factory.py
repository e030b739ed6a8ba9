"""Chooses the vector cache of a wiki: exact, FAISS for a large wiki, or none if the store searches vectors itself."""

import importlib
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from wikiholt.caches.cache_file import CacheBroken
from wikiholt.caches.vectors import FAISS_MIN_CHUNKS
from wikiholt.caches.vectors.cache_state import Array
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.caches.vectors.vector_cache import FileVectorCache
from wikiholt.caches.vectors.vector_table import is_in_sorted
from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidSetting, MissingDependency, make_extra_hint

# FAISS finds candidates by four-bit product codes, which are then scored exactly. Clustered and graph indexes lose
# neighbours on real text; a fast scan of flat codes does not (see the bench).

_TRAINING_ROWS = 50_000
_ADD_BLOCK_ROWS = 65_536


def import_faiss() -> Any:
    """Return the faiss module. Raises MissingDependency if it is not installed."""
    try:
        return importlib.import_module("faiss")
    except ImportError as error:
        raise MissingDependency("FAISS is not installed.", hint=make_extra_hint("faiss")) from error


def count_subspaces(dimensions: int) -> int:
    """Return the number of four-bit codes per vector: one for every two dimensions."""
    return dimensions // 2 if dimensions % 2 == 0 else dimensions


def _use_one_thread(faiss: Any) -> None:
    # OpenMP stores this per thread. A forked child hangs if its parent ever used more than one thread.
    faiss.omp_set_num_threads(1)


@dataclass(frozen=True, slots=True)
class FaissEngine:
    """Flat product codes. `base_candidates` + `candidate_factor` · limit rows are scored exactly."""

    kind: str = "faiss"
    scan_max_rows: int = 20_000
    base_candidates: int = 400
    candidate_factor: int = 4
    verified_sections: tuple[str, ...] = ("codes",)

    def __post_init__(self) -> None:
        """Raise MissingDependency if FAISS is not installed."""
        import_faiss()

    def build_sections(self, vectors: FloatArray) -> Iterator[tuple[str, Array]]:
        faiss = import_faiss()
        _use_one_thread(faiss)
        dimensions = vectors.shape[1]
        index = faiss.index_factory(dimensions, f"PQ{count_subspaces(dimensions)}x4fs", faiss.METRIC_INNER_PRODUCT)
        index.train(np.ascontiguousarray(vectors[:: max(1, len(vectors) // _TRAINING_ROWS)]))
        for start in range(0, len(vectors), _ADD_BLOCK_ROWS):
            index.add(np.ascontiguousarray(vectors[start : start + _ADD_BLOCK_ROWS]))
        yield "codes", faiss.serialize_index(index)

    def open_finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> "FaissFinder":
        faiss = import_faiss()
        try:
            index = faiss.deserialize_index(np.frombuffer(sections["codes"], np.uint8))
        except RuntimeError as error:
            raise CacheBroken("FAISS cannot read the codes of the vector cache.") from error
        if (index.ntotal, index.d) != (count, dimensions):
            raise CacheBroken("The codes of the vector cache belong to other vectors.")
        return FaissFinder(faiss, index, self.base_candidates, self.candidate_factor)


@dataclass(frozen=True, slots=True)
class FaissFinder:
    """Queries FAISS for more and more rows until enough of them are allowed."""

    faiss: Any
    index: Any
    base_candidates: int
    candidate_factor: int

    def find(self, vector: FloatArray, limit: int, allowed_rows: IntArray | None, excluded_rows: IntArray) -> IntArray:
        _use_one_thread(self.faiss)
        total = int(self.index.ntotal)
        available = total - len(excluded_rows) if allowed_rows is None else len(allowed_rows)
        needed = min(self.base_candidates + self.candidate_factor * limit, available)
        allowed = None if allowed_rows is None else np.sort(allowed_rows)
        count = needed + len(excluded_rows) if allowed is None else 2 * needed * total // max(1, available)
        count = min(total, count)
        while True:
            rows = self._search_index(vector, count)
            rows = rows[~is_in_sorted(excluded_rows, rows)] if allowed is None else rows[is_in_sorted(allowed, rows)]
            if len(rows) >= needed or count >= total:
                return rows
            count = min(total, 4 * count)

    def _search_index(self, vector: FloatArray, count: int) -> IntArray:
        _, rows = self.index.search(np.ascontiguousarray(vector)[None], count)
        positions: IntArray = rows[0]
        return positions[positions >= 0]


class FaissVectorCache(FileVectorCache):
    """The same contract as the exact cache, for wikis whose scan would be too slow."""

    _make_engine = FaissEngine


# The choice.

VectorCacheKind = Literal["auto", "exact", "faiss"]
VECTOR_CACHE_KINDS: tuple[VectorCacheKind, ...] = ("auto", "exact", "faiss")


class DatabaseVectorCache:
    """A `VectorCache` that stores nothing: every search queries the index."""

    def __init__(self, index: WikiIndex) -> None:
        self._index = index

    @property
    def version(self) -> int | None:
        """Always 0 (ready): reading the index's version would take as long as the search."""
        return 0

    def refresh(self) -> None:
        """Do nothing."""

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        return self._index.search_vectors(vector, limit, page_ids)

    def read_ahead(self, page_ids: IntArray) -> VectorRows | None:  # noqa: ARG002
        """None: a search in the database takes less time than reading vectors from it."""
        return None

    def get_page_means(self, page_ids: IntArray) -> FloatArray | None:  # noqa: ARG002
        """None: the database has no means."""
        return None

    def verify(self) -> None:
        """Do nothing: there is no file."""

    def wait_idle(self, timeout_s: float | None = None) -> bool:  # noqa: ARG002
        return False

    def close(self) -> None:
        """Do nothing."""


def is_faiss_installed() -> bool:
    return importlib.util.find_spec("faiss") is not None


def resolve_kind(kind: str, chunk_count: int, faiss_min_chunks: int = FAISS_MIN_CHUNKS) -> tuple[VectorCacheKind, str]:
    """Return the kind of cache for this many chunks, and a note for the operator if a better kind is unavailable.

    Raises InvalidSetting.
    """
    if kind not in VECTOR_CACHE_KINDS:
        raise InvalidSetting(f"Unknown vector cache {kind!r}.", hint=f"choose one of {', '.join(VECTOR_CACHE_KINDS)}")
    if kind != "auto":
        return ("exact" if kind == "exact" else "faiss"), ""
    if chunk_count <= faiss_min_chunks:
        return "exact", ""
    if is_faiss_installed():
        return "faiss", ""
    return "exact", f"{chunk_count:,} chunks would be searched faster with FAISS: {make_extra_hint('faiss')}"


def create_vector_cache(
    kind: str, index: WikiIndex, directory: Path, *, faiss_min_chunks: int = FAISS_MIN_CHUNKS, background: bool = True
) -> tuple[FileVectorCache, str]:
    """Create a cache for the current size of the index, with the note of `resolve_kind` (often empty)."""
    chosen, note = resolve_kind(kind, index.get_state().chunks, faiss_min_chunks)
    cache_type = FaissVectorCache if chosen == "faiss" else ExactVectorCache
    return cache_type(index, directory, background=background), note
