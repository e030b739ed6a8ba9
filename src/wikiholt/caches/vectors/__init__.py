"""Vector caches: nearest chunks from a mapped file."""

FAISS_MIN_CHUNKS = 600_000
"""Above this size an exact search takes more than ten milliseconds; below, FAISS saves little (see the bench).

A wiki that grows past it changes its kind of cache when it is opened the next time.
"""
