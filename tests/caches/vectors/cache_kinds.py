"""Caches of every kind over a reference index, and the file of a cache."""

from pathlib import Path

import pytest
from wikiholt.caches.vectors.exact import ExactVectorCache, QuantizedEngine
from wikiholt.caches.vectors.factory import FaissEngine, FaissVectorCache
from wikiholt.caches.vectors.vector_cache import FileVectorCache

from tests.caches.brute_force_index import BruteForceIndex, random_vectors

QUERY = random_vectors(1, seed=99)[0]


ROWS = 400


def exact(reference: BruteForceIndex, folder: Path) -> FileVectorCache:
    return ExactVectorCache(reference.as_index(), folder, background=False)


def sketched(reference: BruteForceIndex, folder: Path) -> FileVectorCache:
    return ExactVectorCache(reference.as_index(), folder, background=False, engine=QuantizedEngine(scan_max_rows=0))


def faiss(reference: BruteForceIndex, folder: Path) -> FileVectorCache:
    pytest.importorskip("faiss")
    return FaissVectorCache(reference.as_index(), folder, background=False, engine=FaissEngine(scan_max_rows=0))


parametrize_kinds = pytest.mark.parametrize("make", [exact, sketched, faiss])


def get_only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path
