"""Caches derived from one version of an index. They can be deleted at any time and are rebuilt from the index."""
