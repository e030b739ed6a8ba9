"""The state of a vector cache, and the protocols of the engines that find candidate rows for it.

A state is immutable: built rows, less the dropped ones, plus the added ones. A refresh replaces it with another, so a
search sees one version from start to end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.cache_file import MappedFile
from wikiholt.caches.vectors.vector_rows import (
    NO_ROWS,
    AppendedRows,
    VectorTable,
    check_unit_length,
    is_in_sorted,
    select_best,
)
from wikiholt.domain.index import FloatArray, IntArray, VectorDelta, VectorHits, VectorRows

Array = NDArray[Any]

_MAX_GATHERED_ROWS = 4_000
_REBUILD_BLOCK_ROWS = 8_192


class CandidateFinder(Protocol):
    """Finds candidates for the nearest rows. They are scored exactly afterwards, so only recall matters."""

    def find(self, vector: FloatArray, limit: int, allowed_rows: IntArray | None, excluded_rows: IntArray) -> IntArray:
        """Return positions that likely include the `limit` nearest rows, without `excluded_rows`.

        If `allowed_rows` is given, only those are returned; it contains no excluded row.
        """


class CandidateEngine(Protocol):
    """Derives file sections from the vectors and opens a finder from the sections."""

    @property
    def kind(self) -> str:
        """The kind of cache, which is also the suffix of its files."""

    @property
    def scan_max_rows(self) -> int:
        """Up to this many rows, every row is scored and there is no finder."""

    @property
    def verified_sections(self) -> tuple[str, ...]:
        """Sections whose checksums are verified when a file is opened."""

    def build_sections(self, vectors: FloatArray) -> Iterator[tuple[str, Array]]:
        """Yield the finder's sections, each in one or more consecutive parts."""

    def open_finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> CandidateFinder: ...


def to_float_array(section: memoryview, *shape: int) -> FloatArray:
    """View a section as an array of floats."""
    return np.frombuffer(section, np.float32).reshape(shape)


@dataclass(frozen=True, slots=True)
class BuiltRows:
    """Rows built at one version, in a file or in memory."""

    version: int
    rows: VectorTable
    finder: CandidateFinder | None
    file: MappedFile | None

    def ensure_unchanged(self) -> None:
        """Raise CacheBroken if the file changed since it was opened."""
        if self.file is not None:
            self.file.ensure_unchanged()


@dataclass(frozen=True, slots=True)
class VectorCacheState:
    """Built, dropped and added rows: together the index at `version`."""

    version: int
    built: BuiltRows
    added: AppendedRows
    dropped: IntArray

    @classmethod
    def from_built(cls, built: BuiltRows) -> "VectorCacheState":
        """Return the state without any changes since the build."""
        return cls(built.version, built, AppendedRows.create_empty(built.rows.vectors.shape[1]), NO_ROWS)

    def __len__(self) -> int:
        return len(self.built.rows) - len(self.dropped) + len(self.added)

    @property
    def file(self) -> MappedFile | None:
        return self.built.file

    @property
    def changed_count(self) -> int:
        """The number of rows added or dropped since the build."""
        return self.added.count + len(self.dropped)

    def apply(self, delta: VectorDelta) -> "VectorCacheState":
        """Return the state after a delta. A chunk that is both dropped and added is replaced."""
        check_unit_length(delta.added.vectors, delta.added.chunk_ids)
        removed = np.union1d(delta.dropped, delta.added.chunk_ids)
        dropped = np.union1d(self.dropped, self.built.rows.find_positions(removed))
        added = self.added.with_changes(delta.added, removed)
        return replace(self, version=delta.version, added=added, dropped=dropped)

    def search(self, vector: FloatArray, limit: int, allowed_page_ids: IntArray | None) -> VectorHits:
        """Return the nearest rows, only of these pages if given, by distance and then chunk id."""
        self.built.ensure_unchanged()
        built, scores = self._search_built(vector, limit, allowed_page_ids)
        self.built.ensure_unchanged()
        added_scores = self.added.score(vector, allowed_page_ids)
        added = select_best(added_scores, limit)
        return self._rank(built, scores, added, added_scores[added], limit)

    def score_chunks(self, vector: FloatArray, chunk_ids: IntArray, limit: int) -> VectorHits:
        """Return the nearest of these chunks, by distance and then chunk id. Unknown ids are ignored."""
        self.built.ensure_unchanged()
        rows = self.built.rows
        built = np.setdiff1d(rows.find_positions(chunk_ids), self.dropped, assume_unique=True)
        scores = rows.score_positions(vector, built)
        added = np.setdiff1d(np.flatnonzero(np.isin(self.added.chunk_ids, chunk_ids)), self.added.dropped_positions)
        return self._rank(built, scores, added, np.vecdot(self.added.vectors[added], vector), limit)

    def _rank(
        self, built: IntArray, built_scores: FloatArray, added: IntArray, added_scores: FloatArray, limit: int
    ) -> VectorHits:
        """Combine positions among the built and the added rows into the `limit` nearest."""
        rows = self.built.rows
        chunk_ids = np.concatenate((rows.chunk_ids[built], self.added.chunk_ids[added]))
        page_ids = np.concatenate((rows.page_ids[built], self.added.page_ids[added]))
        cosines = np.concatenate((built_scores, added_scores))
        distances = np.maximum(np.float32(1.0) - cosines, np.float32(0.0))
        order = np.lexsort((chunk_ids, distances))[:limit]
        return VectorHits(chunk_ids[order], page_ids[order], distances[order])

    def sample(self, count: int, seed: int) -> VectorRows:
        """Return random rows of those that were built and not dropped."""
        rows = self.built.rows
        drawn = np.random.default_rng(seed).permutation(len(rows))[: count + len(self.dropped)]
        chosen = np.sort(drawn[~np.isin(drawn, self.dropped)][:count])
        return VectorRows(rows.chunk_ids[chosen], rows.page_ids[chosen], rows.vectors[chosen])

    def iter_blocks(self) -> Iterator[VectorRows]:
        """Yield every row of the state, for a rebuild."""
        rows = self.built.rows
        keep = np.ones(len(rows), np.bool_)
        keep[self.dropped] = False
        for start in range(0, len(rows), _REBUILD_BLOCK_ROWS):
            self.built.ensure_unchanged()
            kept = start + np.flatnonzero(keep[start : start + _REBUILD_BLOCK_ROWS])
            vectors = rows.vectors[kept]
            check_unit_length(vectors, rows.chunk_ids[kept])
            yield VectorRows(rows.chunk_ids[kept], rows.page_ids[kept], vectors)
        yield self.added.get_live_rows()

    def _search_built(
        self, vector: FloatArray, limit: int, allowed_page_ids: IntArray | None
    ) -> tuple[IntArray, FloatArray]:
        """Return candidate positions among the built rows, with their exact scores."""
        rows, finder = self.built.rows, self.built.finder
        allowed = None if allowed_page_ids is None else rows.find_page_positions(allowed_page_ids)
        if allowed is not None and len(self.dropped):
            allowed = allowed[~is_in_sorted(self.dropped, allowed)]
        if allowed is not None and len(allowed) <= _MAX_GATHERED_ROWS:
            positions = allowed
        elif finder is not None:
            positions = finder.find(vector, limit, allowed, self.dropped)
        else:
            scores = rows.score_all(vector)
            scores[self.dropped] = -np.inf
            positions = select_best(scores, limit) if allowed is None else allowed[select_best(scores[allowed], limit)]
        return positions, rows.score_positions(vector, positions)
