"""ChromaDB as a vector cache. Nothing of it ever runs in a process of Wikiholt's own, but in `child` alone."""

from wikiholt.vectors.chroma.cache import ChromaVectorCache
from wikiholt.vectors.chroma.engine import ChromaEngine, ChromaConfig

__all__ = ["ChromaEngine", "ChromaVectorCache", "ChromaConfig"]
