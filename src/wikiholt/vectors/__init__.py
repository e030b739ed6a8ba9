"""Vector caches: derived from an index, thrown away at any moment, rebuilt without the embedder."""

from wikiholt.vectors.exact import ExactCache
from wikiholt.vectors.faults import CacheBroken, CacheNotReady
from wikiholt.vectors.sketch import SketchEngine

__all__ = ["CacheBroken", "CacheNotReady", "ExactCache", "SketchEngine"]
