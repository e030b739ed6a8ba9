"""A reference index in memory: the methods of WikiIndex that a vector cache uses, answered by brute force."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import numpy as np

from wikiholt.domain.index import FloatArray, IndexState, IntArray, Recipe, VectorHits, VectorRows
from wikiholt.index.sqlite.index import SqliteIndex

DIMENSIONS = 24


def normalize(vectors: FloatArray) -> FloatArray:
    return (vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)).astype(np.float32)


def random_vectors(count: int, seed: int = 0, dimensions: int = DIMENSIONS) -> FloatArray:
    """Unit vectors whose variance decreases from dimension to dimension, like vectors of real text."""
    rng = np.random.default_rng(seed)
    return normalize(rng.normal(size=(count, dimensions)) / np.sqrt(1.0 + np.arange(dimensions)))


@dataclass
class BruteForceSnapshot:
    version: int
    count: int
    rows: VectorRows

    def iter_blocks(self) -> Iterator[VectorRows]:
        for start in range(0, self.count, 1000):
            part = slice(start, start + 1000)
            yield VectorRows(self.rows.chunk_ids[part], self.rows.page_ids[part], self.rows.vectors[part])


class BruteForceIndex:
    """Rows by chunk id, with a log of every version."""

    def __init__(self, count: int = 0, seed: int = 0, dimensions: int = DIMENSIONS, per_page: int = 10) -> None:
        self.generation = 1
        self.dimensions = dimensions
        self.rows: dict[int, tuple[int, FloatArray]] = {}
        self.log: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
        self.snapshots = 0
        self.reading = 0
        self.next_id = 1
        if count:
            self.add(random_vectors(count, seed, dimensions), [1 + i // per_page for i in range(count)])

    def add(self, vectors: FloatArray, pages: list[int]) -> list[int]:
        ids = list(range(self.next_id, self.next_id + len(vectors)))
        self.next_id += len(vectors)
        self.rows.update({i: (page, vector) for i, page, vector in zip(ids, pages, vectors, strict=True)})
        self.log.append((tuple(ids), ()))
        return ids

    def remove(self, ids: list[int]) -> None:
        for i in ids:
            del self.rows[i]
        self.log.append(((), tuple(ids)))

    def replace(self, i: int, vector: FloatArray) -> None:
        self.rows[i] = (self.rows[i][0], vector)
        self.log.append(((i,), ()))

    def get_version(self) -> int:
        return len(self.log)

    def get_state(self) -> IndexState:
        recipe = Recipe("model", self.dimensions, "text")
        return IndexState(self.generation, self.get_version(), recipe, None, None, 0, len(self.rows), 0)

    def get_table(self, ids: list[int]) -> VectorRows:
        vectors = np.array([self.rows[i][1] for i in ids], np.float32).reshape(-1, self.dimensions)
        return VectorRows(np.array(ids, np.int64), np.array([self.rows[i][0] for i in ids], np.int64), vectors)

    @contextmanager
    def open_vector_snapshot(self) -> Iterator[BruteForceSnapshot]:
        self.snapshots += 1
        self.reading += 1
        try:
            yield BruteForceSnapshot(self.get_version(), len(self.rows), self.get_table(sorted(self.rows)))
        finally:
            self.reading -= 1

    def search_vectors(self, vector: FloatArray, limit: int, page_ids: IntArray | None = None) -> VectorHits:
        wanted = None if page_ids is None else set(page_ids.tolist())
        ids = sorted(i for i, (page, _) in self.rows.items() if wanted is None or page in wanted)
        rows = self.get_table(ids)
        distances = np.maximum(np.float32(1) - np.vecdot(rows.vectors, vector), np.float32(0))
        order = np.lexsort((rows.chunk_ids, distances))[:limit]
        return VectorHits(rows.chunk_ids[order], rows.page_ids[order], distances[order])

    def score_chunks(self, vector: FloatArray, chunk_ids: IntArray, limit: int) -> VectorHits:
        rows = self.get_table([i for i in sorted(set(chunk_ids.tolist())) if i in self.rows])
        return VectorHits.rank(rows.chunk_ids, rows.page_ids, np.vecdot(rows.vectors, vector), limit)

    def sample_vectors(self, count: int) -> VectorRows:
        drawn = np.random.default_rng().permutation(sorted(self.rows))[:count]
        return self.get_table(sorted(drawn.tolist()))

    def as_index(self) -> SqliteIndex:
        return cast(SqliteIndex, self)


def assert_same(found: VectorHits, expected: VectorHits) -> None:
    np.testing.assert_array_equal(found.chunk_ids, expected.chunk_ids)
    np.testing.assert_array_equal(found.page_ids, expected.page_ids)
    np.testing.assert_allclose(found.distances, expected.distances, atol=1e-6)
    assert found.distances.dtype == np.float32


def measure_recall(found: VectorHits, expected: VectorHits) -> float:
    if not len(expected.chunk_ids):
        return 1.0
    return len(set(found.chunk_ids.tolist()) & set(expected.chunk_ids.tolist())) / len(expected.chunk_ids)
