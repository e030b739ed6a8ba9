"""Keyword caches: BM25 by postings in a mapped file."""
