"""ChromaDB as a vector cache. Nothing of it ever runs in a process of Wikiholt's own, but in `child` alone."""

from wikiholt.vectors.chroma.cache import ChromaCache
from wikiholt.vectors.chroma.engine import Chroma, Place

__all__ = ["Chroma", "ChromaCache", "Place"]
