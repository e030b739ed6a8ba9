"""Vector caches: derived from an index, thrown away at any moment, rebuilt without the embedder."""

from wikiholt.cachefile.faults import CacheBroken, CacheNotReady
from wikiholt.vectors.choose import CROSSOVER, KINDS, cache_for, kind_for
from wikiholt.vectors.exact import ExactCache
from wikiholt.vectors.faiss import FaissCache, FaissEngine
from wikiholt.vectors.sketch import SketchEngine

__all__ = [
    "CROSSOVER",
    "KINDS",
    "CacheBroken",
    "CacheNotReady",
    "ExactCache",
    "FaissCache",
    "FaissEngine",
    "SketchEngine",
    "cache_for",
    "kind_for",
]
