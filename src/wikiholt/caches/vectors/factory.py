"""No cache at all: a store that finds the nearest chunks by itself, fast, is asked each time."""

import importlib.util
from pathlib import Path
from typing import Literal

from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.caches.vectors.faiss import FaissVectorCache
from wikiholt.caches.vectors.vector_cache import FileVectorCache
from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidSetting


class DatabaseVectorCache:
    """A `VectorCache` that holds nothing and so is never behind."""

    def __init__(self, index: WikiIndex) -> None:
        self._index = index

    @property
    def version(self) -> int | None:
        """Ready, always: to ask which version that is would take as long as the search."""
        return 0

    def refresh(self) -> None:
        """Nothing to bring up to date."""

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        return self._index.search_vectors(vector, limit, page_ids)

    def verify(self) -> None:
        """Nothing to read."""

    def wait_idle(self, timeout: float | None = None) -> bool:  # noqa: ARG002
        return False

    def close(self) -> None:
        """Nothing to let go of."""


# Which kind of cache a wiki gets.


VectorCacheKind = Literal["auto", "exact", "faiss"]
VECTOR_CACHE_KINDS: tuple[VectorCacheKind, ...] = ("auto", "exact", "faiss")

FAISS_MIN_CHUNKS = 600_000
"""From here on the exact cache takes more than ten milliseconds; below, FAISS saves few of them. See the bench.

A wiki that grows past it changes its kind of cache when it is opened again.
"""


def is_faiss_installed() -> bool:
    return importlib.util.find_spec("faiss") is not None


def resolve_kind(kind: str, chunk_count: int, faiss_min_chunks: int = FAISS_MIN_CHUNKS) -> tuple[VectorCacheKind, str]:
    """The kind of cache for so many rows, and a note for the operator where the choice was not free."""
    if kind not in VECTOR_CACHE_KINDS:
        raise InvalidSetting(
            f"There is no vector cache {kind!r}.", hint=f"choose one of {', '.join(VECTOR_CACHE_KINDS)}"
        )
    if kind != "auto":
        return ("exact" if kind == "exact" else "faiss"), ""
    if chunk_count <= faiss_min_chunks:
        return "exact", ""
    if is_faiss_installed():
        return "faiss", ""
    return "exact", f'{chunk_count:,} chunks would be searched faster with FAISS: pip install "wikiholt[faiss]"'


def create_vector_cache(
    kind: str, index: WikiIndex, directory: Path, *, faiss_min_chunks: int = FAISS_MIN_CHUNKS, background: bool = True
) -> tuple[FileVectorCache, str]:
    """A cache for this index as large as it is now, and the note that belongs to the choice (often empty)."""
    chosen, note = resolve_kind(kind, index.get_state().chunks, faiss_min_chunks)
    make = FaissVectorCache if chosen == "faiss" else ExactVectorCache
    return make(index, directory, background=background), note
