"""Vector caches: nearest chunks by exact or approximate search."""
