"""Chooses the vector cache of a wiki, and the pass-through for stores that search vectors themselves."""

import importlib.util
from pathlib import Path
from typing import Literal

from wikiholt.caches.vectors import FAISS_MIN_CHUNKS
from wikiholt.caches.vectors.exact import ExactVectorCache
from wikiholt.caches.vectors.faiss import FaissVectorCache
from wikiholt.caches.vectors.vector_cache import FileVectorCache
from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.domain.storage_protocols import WikiIndex
from wikiholt.errors import InvalidSetting, make_extra_hint

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

    def wait_idle(self, timeout: float | None = None) -> bool:  # noqa: ARG002
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
