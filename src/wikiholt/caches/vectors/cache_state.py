"""What makes one kind of cache differ from another: how it guesses which rows are worth scoring exactly."""

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


class CandidateFinder(Protocol):
    """Guesses the nearest rows. A guess is scored exactly afterwards, so it only has to miss none."""

    def find(self, vector: FloatArray, limit: int, allowed_rows: IntArray | None, excluded_rows: IntArray) -> IntArray:
        """The positions of rows likely to hold the `limit` nearest; of `among` only if given, of `skip` never.

        `among` holds none of `skip` already.
        """


class CandidateEngine(Protocol):
    """Derives what its finder needs from the vectors, section by section, and makes the finder of the sections."""

    @property
    def kind(self) -> str:
        """The name of the kind of cache, which is also how its files end."""

    @property
    def scan_max_rows(self) -> int:
        """Up to how many rows every row is scored and no finder is made."""

    @property
    def verified_sections(self) -> tuple[str, ...]:
        """Sections that must be compared with their checksums before they are used."""

    def build_sections(self, vectors: FloatArray) -> Iterator[tuple[str, Array]]:
        """The sections of the finder, each in one or more consecutive parts."""

    def open_finder(self, sections: Mapping[str, memoryview], count: int, dimensions: int) -> CandidateFinder: ...


def to_float_array(section: memoryview, *shape: int) -> FloatArray:
    """A section read as an array of floats."""
    return np.frombuffer(section, np.float32).reshape(shape)


# One consistent state of a cache: rows as they were built, less those dropped since, plus those added since. A state
# never changes; a refresh makes another and puts it in its place, so a search sees one version from end to end.


_MAX_GATHERED_ROWS = 4_000
_REBUILD_BLOCK_ROWS = 8_192


@dataclass(frozen=True, slots=True)
class BuiltRows:
    """Rows as they were built at a version, from a file or in memory."""

    version: int
    rows: VectorTable
    finder: CandidateFinder | None
    file: MappedFile | None

    def ensure_unchanged(self) -> None:
        """Raise if the file under the rows is no longer what was opened."""
        if self.file is not None:
            self.file.ensure_unchanged()


@dataclass(frozen=True, slots=True)
class VectorCacheState:
    """Built rows, dropped rows and added rows: together the index at `version`."""

    version: int
    built: BuiltRows
    added: AppendedRows
    dropped: IntArray

    @classmethod
    def from_built(cls, built: BuiltRows) -> "VectorCacheState":
        """The state that is just what was built."""
        return cls(built.version, built, AppendedRows.create_empty(built.rows.vectors.shape[1]), NO_ROWS)

    def __len__(self) -> int:
        return len(self.built.rows) - len(self.dropped) + len(self.added)

    @property
    def changed_count(self) -> int:
        """How many rows differ from what was built."""
        return self.added.count + len(self.dropped)

    def apply(self, delta: VectorDelta) -> "VectorCacheState":
        """The state after a change; a chunk that is both dropped and added is replaced."""
        check_unit_length(delta.added.vectors, delta.added.chunk_ids)
        gone = np.union1d(delta.dropped, delta.added.chunk_ids)
        dropped = np.union1d(self.dropped, self.built.rows.find_positions(gone))
        return replace(self, version=delta.version, added=self.added.with_changes(delta.added, gone), dropped=dropped)

    def search(self, vector: FloatArray, limit: int, allowed_page_ids: IntArray | None) -> VectorHits:
        """The nearest rows, of these pages only if given, by distance and then chunk id."""
        self.built.ensure_unchanged()
        built, scores = self._search_built(vector, limit, allowed_page_ids)
        self.built.ensure_unchanged()
        added_scores = self.added.score(vector, allowed_page_ids)
        added = select_best(added_scores, limit)
        rows = self.built.rows
        chunk_ids = np.concatenate((rows.chunk_ids[built], self.added.chunk_ids[added]))
        page_ids = np.concatenate((rows.page_ids[built], self.added.page_ids[added]))
        cosines = np.concatenate((scores, added_scores[added]))
        distances = np.maximum(np.float32(1.0) - cosines, np.float32(0.0))
        order = np.lexsort((chunk_ids, distances))[:limit]
        return VectorHits(chunk_ids[order], page_ids[order], distances[order])

    def score_chunks(self, vector: FloatArray, chunk_ids: IntArray, limit: int) -> VectorHits:
        """The nearest of these chunks, by distance and then chunk id; chunks that are not here are left out."""
        self.built.ensure_unchanged()
        rows = self.built.rows
        built = np.setdiff1d(rows.find_positions(chunk_ids), self.dropped, assume_unique=True)
        scores = rows.score_positions(vector, built)
        added = np.setdiff1d(np.flatnonzero(np.isin(self.added.chunk_ids, chunk_ids)), self.added.dropped_positions)
        found = np.concatenate((rows.chunk_ids[built], self.added.chunk_ids[added]))
        page_ids = np.concatenate((rows.page_ids[built], self.added.page_ids[added]))
        cosines = np.concatenate((scores, np.vecdot(self.added.vectors[added], vector)))
        distances = np.maximum(np.float32(1.0) - cosines, np.float32(0.0))
        order = np.lexsort((found, distances))[:limit]
        return VectorHits(found[order], page_ids[order], distances[order])

    def sample(self, count: int, seed: int) -> VectorRows:
        """Some rows, drawn at random of those that were built and not dropped."""
        rows = self.built.rows
        drawn = np.random.default_rng(seed).permutation(len(rows))[: count + len(self.dropped)]
        chosen = np.sort(drawn[~np.isin(drawn, self.dropped)][:count])
        return VectorRows(rows.chunk_ids[chosen], rows.page_ids[chosen], rows.vectors[chosen])

    def iter_blocks(self) -> Iterator[VectorRows]:
        """Every row of the state, for building anew."""
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
        """Positions among the built rows that may be among the nearest, with their exact scores."""
        rows, finder = self.built.rows, self.built.finder
        among = None if allowed_page_ids is None else rows.find_page_positions(allowed_page_ids)
        if among is not None and len(self.dropped):
            among = among[~is_in_sorted(self.dropped, among)]
        if among is not None and len(among) <= _MAX_GATHERED_ROWS:
            positions = among
        elif finder is not None:
            positions = finder.find(vector, limit, among, self.dropped)
        else:
            scores = rows.score_all(vector)
            scores[self.dropped] = -np.inf
            positions = select_best(scores, limit) if among is None else among[select_best(scores[among], limit)]
        return positions, rows.score_positions(vector, positions)
