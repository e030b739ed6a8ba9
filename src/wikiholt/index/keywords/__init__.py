"""Keyword caches: BM25 from postings in a mapped file."""
