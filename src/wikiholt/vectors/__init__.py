"""Vector caches: derived from an index, thrown away at any moment, rebuilt without the embedder."""

from wikiholt.cachefile.faults import CacheBroken, CacheNotReady
from wikiholt.vectors.choose import FAISS_MIN_CHUNKS, VECTOR_CACHE_KINDS, create_vector_cache, resolve_kind
from wikiholt.vectors.exact import ExactVectorCache
from wikiholt.vectors.faiss import FaissVectorCache, FaissEngine
from wikiholt.vectors.sketch import QuantizedEngine

__all__ = [
    "FAISS_MIN_CHUNKS",
    "VECTOR_CACHE_KINDS",
    "CacheBroken",
    "CacheNotReady",
    "ExactVectorCache",
    "FaissVectorCache",
    "FaissEngine",
    "QuantizedEngine",
    "create_vector_cache",
    "resolve_kind",
]
