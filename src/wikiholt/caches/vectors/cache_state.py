"""The state of a vector cache, and the protocols of the engines that find candidate rows for it.

A state is immutable: built rows, less the dropped ones, plus the added ones. A refresh replaces it with another, so a
search sees one version from start to end.

Scores come from `numpy.vecdot`. It sums every row in the same order at any position, so equal vectors get equal scores
and ties are resolved by chunk id; and it starts no threads, which would compete with other searches.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from wikiholt.caches.cache_file import MappedFile
from wikiholt.caches.vectors.vector_table import MeanTable, VectorTable, check_unit_length, is_in_sorted
from wikiholt.domain.index import FloatArray, IntArray, VectorDelta, VectorHits, VectorRows, compute_page_means

NO_ROWS: IntArray = np.empty(0, np.int64)
NO_SCORES: FloatArray = np.empty(0, np.float32)


def select_best(scores: FloatArray, count: int) -> IntArray:
    """Return the positions of the `count` highest scores and of all ties with the last. Scores of -inf are excluded."""
    if count >= len(scores):
        return np.flatnonzero(scores > -np.inf)
    if count <= 0:
        return NO_ROWS
    least = np.partition(scores, len(scores) - count)[len(scores) - count]
    return np.flatnonzero(scores >= least) if least > -np.inf else np.flatnonzero(scores > -np.inf)


class _RowBuffer:
    """Arrays that grow by doubling. Written rows never change, so older views stay valid."""

    def __init__(self, dimensions: int, capacity: int = 64) -> None:
        self.row_count = 0
        self.chunk_ids: IntArray = np.empty(capacity, np.int64)
        self.page_ids: IntArray = np.empty(capacity, np.int64)
        self.vectors: FloatArray = np.empty((capacity, dimensions), np.float32)

    def ensure_capacity(self, count: int, extra: int) -> "_RowBuffer":
        """Return a buffer with the first `count` rows and space for more: this one if no rows follow them yet."""
        if self.row_count == count and count + extra <= len(self.chunk_ids):
            return self
        grown = _RowBuffer(self.vectors.shape[1], max(64, 2 * (count + extra)))
        grown.append(VectorRows(self.chunk_ids[:count], self.page_ids[:count], self.vectors[:count]))
        return grown

    def append(self, rows: VectorRows) -> None:
        end = self.row_count + len(rows.chunk_ids)
        self.chunk_ids[self.row_count : end] = rows.chunk_ids
        self.page_ids[self.row_count : end] = rows.page_ids
        self.vectors[self.row_count : end] = rows.vectors
        self.row_count = end


@dataclass(frozen=True, slots=True)
class AppendedRows:
    """Rows added since the build, some of them dropped again. Immutable; `with_changes` returns another."""

    buffer: _RowBuffer
    count: int = 0
    dropped_positions: IntArray = field(default_factory=lambda: NO_ROWS)

    @classmethod
    def create_empty(cls, dimensions: int) -> "AppendedRows":
        return cls(_RowBuffer(dimensions))

    def __len__(self) -> int:
        return self.count - len(self.dropped_positions)

    @property
    def chunk_ids(self) -> IntArray:
        return self.buffer.chunk_ids[: self.count]

    @property
    def page_ids(self) -> IntArray:
        return self.buffer.page_ids[: self.count]

    @property
    def vectors(self) -> FloatArray:
        return self.buffer.vectors[: self.count]

    def with_changes(self, rows: VectorRows, dropped: IntArray) -> "AppendedRows":
        """Return a copy without the dropped chunks and with these rows appended."""
        dropped_positions = np.union1d(self.dropped_positions, np.flatnonzero(np.isin(self.chunk_ids, dropped)))
        buffer = self.buffer.ensure_capacity(self.count, len(rows.chunk_ids))
        buffer.append(rows)
        return AppendedRows(buffer, self.count + len(rows.chunk_ids), dropped_positions)

    def score(self, vector: FloatArray, page_ids: IntArray | None) -> FloatArray:
        """Return the cosine of every row; -inf for dropped rows and rows of other pages."""
        scores: FloatArray = np.vecdot(self.vectors, vector)
        scores[self.dropped_positions] = -np.inf
        if page_ids is not None:
            scores[~is_in_sorted(page_ids, self.page_ids)] = -np.inf
        return scores

    def get_live_rows(self) -> VectorRows:
        """Return the rows that were not dropped."""
        keep = np.ones(self.count, np.bool_)
        keep[self.dropped_positions] = False
        return VectorRows(self.chunk_ids[keep], self.page_ids[keep], self.vectors[keep])


# The state of a cache


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
    means: MeanTable
    finder: CandidateFinder | None
    file: MappedFile | None

    def ensure_unchanged(self) -> None:
        """Raise CacheBroken if the file changed since it was opened."""
        if self.file is not None:
            self.file.ensure_unchanged()

    def count_read(self) -> None:
        """Count a read of some rows; every row of a small cache is read anyway."""
        if self.file is not None and self.finder is not None:
            self.file.count_read("vectors", "means")


@dataclass(frozen=True, slots=True)
class VectorCacheState:
    """Built, dropped and added rows: together the index at `version`."""

    version: int
    built: BuiltRows
    added: AppendedRows
    dropped: IntArray
    changed_page_ids: IntArray = field(default_factory=lambda: NO_ROWS)
    """The pages of dropped and added rows, sorted."""
    recent_scores: dict[None, tuple[FloatArray, FloatArray]] = field(default_factory=dict, repr=False, compare=False)
    """The last vector with which every built row was scored, and the scores. One search needs them three times."""
    recent_positions: dict[None, tuple[IntArray, IntArray]] = field(default_factory=dict, repr=False, compare=False)
    """The last pages to which a search was restricted, and the positions of their rows. Filters are used again."""

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
        return replace(
            self,
            version=delta.version,
            added=added,
            dropped=dropped,
            changed_page_ids=np.union1d(self.built.rows.page_ids[dropped], added.page_ids),
            recent_scores={},
            recent_positions={},
        )

    def search(self, vector: FloatArray, limit: int, allowed_page_ids: IntArray | None) -> VectorHits:
        """Return the nearest rows, only of these pages if given, by distance and then chunk id."""
        self.built.ensure_unchanged()
        built, scores = self._search_built(vector, limit, allowed_page_ids)
        self.built.ensure_unchanged()
        if not self.added.count:
            return self._rank_built(built, scores, limit)
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
        return VectorHits.rank(chunk_ids, page_ids, cosines, limit)

    def _rank_built(self, positions: IntArray, cosines: FloatArray, limit: int) -> VectorHits:
        """The same without added rows."""
        rows = self.built.rows
        return VectorHits.rank(rows.chunk_ids[positions], rows.page_ids[positions], cosines, limit)

    def get_page_vectors(self, page_ids: IntArray) -> VectorRows:
        """Return every row of these pages (sorted ids), in no particular order."""
        self.built.ensure_unchanged()
        rows, added = self.built.rows, self.added
        built = rows.find_page_positions(page_ids)
        if len(self.dropped):
            built = built[~is_in_sorted(self.dropped, built)]
        chunk_ids, of_pages, vectors = rows.chunk_ids[built], rows.page_ids[built], rows.vectors[built]
        self.built.ensure_unchanged()
        self.built.count_read()
        check_unit_length(vectors, chunk_ids)
        if added.count:
            chosen = np.flatnonzero(is_in_sorted(page_ids, added.page_ids))
            chosen = np.setdiff1d(chosen, added.dropped_positions, assume_unique=True)
            chunk_ids = np.concatenate((chunk_ids, added.chunk_ids[chosen]))
            of_pages = np.concatenate((of_pages, added.page_ids[chosen]))
            vectors = np.concatenate((vectors, added.vectors[chosen]))
        return VectorRows(chunk_ids, of_pages, vectors)

    def get_page_means(self, page_ids: IntArray) -> FloatArray:
        """Return the mean of the rows of each of these pages (sorted ids) as a unit vector; zeros without rows."""
        self.built.ensure_unchanged()
        unchanged = np.flatnonzero(~is_in_sorted(self.changed_page_ids, page_ids))
        known, vectors = self.built.means.read(page_ids[unchanged])
        self.built.ensure_unchanged()
        if len(known) == len(page_ids):
            return vectors
        means = np.zeros((len(page_ids), vectors.shape[1]), np.float32)
        means[unchanged[known]] = vectors
        others = np.setdiff1d(np.arange(len(page_ids)), unchanged[known], assume_unique=True)
        means[others] = compute_page_means(self.get_page_vectors(page_ids[others]), page_ids[others])
        return means

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

    def _find_live_positions(self, page_ids: IntArray) -> IntArray:
        """Return the positions of the rows of these pages that were not dropped."""
        known_page_ids, positions = self.recent_positions.get(None, (None, NO_ROWS))
        if known_page_ids is page_ids:
            return positions
        positions = self.built.rows.find_page_positions(page_ids)
        if len(self.dropped):
            positions = positions[~is_in_sorted(self.dropped, positions)]
        if len(positions) > _MAX_GATHERED_ROWS:
            self.recent_positions[None] = page_ids, positions
        return positions

    def _search_built(
        self, vector: FloatArray, limit: int, allowed_page_ids: IntArray | None
    ) -> tuple[IntArray, FloatArray]:
        """Return candidate positions among the built rows, with their exact scores."""
        rows, finder = self.built.rows, self.built.finder
        allowed = None if allowed_page_ids is None else self._find_live_positions(allowed_page_ids)
        if allowed is not None and len(allowed) <= _MAX_GATHERED_ROWS:
            scored_vector, scores = self.recent_scores.get(None, (None, NO_SCORES))
            if scored_vector is vector:
                return allowed, scores[allowed]
            positions = allowed
        elif finder is not None:
            positions = finder.find(vector, limit, allowed, self.dropped)
        else:
            scores = rows.score_all(vector)
            scores[self.dropped] = -np.inf
            self.recent_scores[None] = vector, scores
            positions = select_best(scores, limit) if allowed is None else allowed[select_best(scores[allowed], limit)]
        scores = rows.score_positions(vector, positions)
        self.built.count_read()
        return positions, scores
