"""Vector caches: nearest chunks from a mapped file."""
