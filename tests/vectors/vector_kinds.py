"""Caches of every kind over a truth, and the file of one."""

from pathlib import Path

import pytest
from vector_truth import Truth, random_vectors

from wikiholt.vectors import ExactCache, FaissCache, FaissEngine, SketchEngine
from wikiholt.vectors.derived import DerivedCache

QUERY = random_vectors(1, seed=99)[0]


ROWS = 400


def exact(truth: Truth, folder: Path) -> DerivedCache:
    return ExactCache(truth.as_index(), folder, background=False)


def sketched(truth: Truth, folder: Path) -> DerivedCache:
    return ExactCache(truth.as_index(), folder, background=False, engine=SketchEngine(scan_below=0))


def faiss(truth: Truth, folder: Path) -> DerivedCache:
    pytest.importorskip("faiss")
    return FaissCache(truth.as_index(), folder, background=False, engine=FaissEngine(scan_below=0))


every_kind = pytest.mark.parametrize("make", [exact, sketched, faiss])


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path
