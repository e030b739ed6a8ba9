"""The vectors of an index at one version: which rows of its file count, and searches among them.

A table is immutable, so a search sees one version from start to end.
"""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows
from wikiholt.index.sqlite.vector_codes import VectorCodes, select_best
from wikiholt.index.sqlite.vector_file import MEAN_ID, VectorFile, make_damaged_error

_MAX_GATHERED_ROWS = 4_000
"""Up to this many rows of allowed pages are scored one by one; above, all rows are."""
_NO_IDS: IntArray = np.empty(0, np.int64)


class VectorTable:
    """Rows are known by their slots, which are their positions in the file."""

    def __init__(
        self,
        file: VectorFile,
        count: int,
        version: int,
        dropped: IntArray,
        earlier: "VectorTable | None" = None,
        codes: VectorCodes | None = None,
    ) -> None:
        """`count` rows of the file count. `dropped` are the ids of deleted chunks, since `earlier` if that is given."""
        self.version = version
        self.file = file
        self.codes = codes
        known_chunk_ids = known_page_ids = _NO_IDS
        dead: NDArray[np.bool_] = np.zeros(0, np.bool_)
        if earlier is not None:
            known_chunk_ids, known_page_ids, dead = earlier.chunk_ids, earlier.page_ids, earlier.dead
        chunk_ids, page_ids = file.read_ids(len(known_chunk_ids), count)
        self.chunk_ids: IntArray = np.concatenate((known_chunk_ids, chunk_ids))
        self.page_ids: IntArray = np.concatenate((known_page_ids, page_ids))
        self.dead: NDArray[np.bool_] = np.concatenate((dead, np.zeros(len(chunk_ids), np.bool_)))
        self.dead |= np.isin(self.chunk_ids, dropped)
        self._is_mean = self.chunk_ids == MEAN_ID
        self.dead[1:] |= self._is_mean[1:] & self.dead[:-1]  # a mean follows the last chunk of its page
        self._excluded = np.flatnonzero(self.dead | self._is_mean)
        self._recent_filter: tuple[IntArray, IntArray] = _NO_IDS, _NO_IDS

    def __len__(self) -> int:
        """The number of chunks."""
        return len(self.chunk_ids) - len(self._excluded)

    @property
    def live_slots(self) -> IntArray:
        """The slots of all rows that count, also of means."""
        return np.flatnonzero(~self.dead)

    @property
    def live_ids(self) -> IntArray:
        """The ids of all chunks, in order."""
        return self.chunk_ids[self.chunk_slots]

    @cached_property
    def chunk_slots(self) -> IntArray:
        """The slots of all chunks. Their ids grow from row to row."""
        return np.flatnonzero(~(self.dead | self._is_mean))

    @cached_property
    def _page_order(self) -> tuple[IntArray, IntArray]:
        """The slots of the rows that count, ordered by page, and the page of each."""
        live = self.live_slots
        order = live[np.argsort(self.page_ids[live], kind="stable")]
        return order, self.page_ids[order]

    # ── searching ────────────────────────────────────────────────────────────────────────────────

    def search(self, vector: FloatArray, limit: int, page_ids: IntArray | None) -> VectorHits:
        """The nearest chunks, only of these pages (sorted ids) if given, by distance and then chunk id."""
        allowed = None if page_ids is None else self._find_allowed(page_ids)
        if allowed is None or len(allowed) > _MAX_GATHERED_ROWS:
            allowed = self._find_nearest(vector, limit, allowed)
        return self._rank(vector, allowed, limit)

    def _find_allowed(self, page_ids: IntArray) -> IntArray:
        """The slots of the chunks of these pages. Searches use a filter again, so those of the last one are kept."""
        recent_page_ids, slots = self._recent_filter
        if recent_page_ids is not page_ids:
            slots = self._find_page_rows(page_ids)[0]
            self._recent_filter = page_ids, slots
        return slots

    def score_chunks(self, vector: FloatArray, chunk_ids: IntArray, limit: int) -> VectorHits:
        """The nearest of these chunks, by distance and then chunk id. Unknown ids are ignored."""
        return self._rank(vector, self.find_slots(chunk_ids), limit)

    def _rank(self, vector: FloatArray, slots: IntArray, limit: int) -> VectorHits:
        cosines = np.vecdot(self.file.read(slots), vector)
        return VectorHits.rank(self.chunk_ids[slots], self.page_ids[slots], cosines, limit)

    def _find_nearest(self, vector: FloatArray, limit: int, allowed: IntArray | None) -> IntArray:
        """Slots that include the nearest rows, or with codes likely do. Rows without codes are all compared."""
        codes = self.codes if self.codes is not None and self.codes.is_complete() else None
        coded = 0 if codes is None else codes.row_count
        scores = self.file.score(vector, coded, len(self.chunk_ids))
        self._require_finite(scores, coded)
        if allowed is None:
            scores[self._excluded[np.searchsorted(self._excluded, coded) :] - coded] = -np.inf
            nearest = coded + select_best(scores, limit)
        else:
            late = np.sort(allowed[allowed >= coded])
            nearest = late[select_best(scores[late - coded], limit)]
        if codes is None:
            return nearest
        early = None if allowed is None else allowed[allowed < coded]
        excluded = self._excluded[: np.searchsorted(self._excluded, coded)]
        return np.concatenate((codes.find(vector, limit, early, excluded), nearest))

    def _require_finite(self, scores: FloatArray, start: int) -> None:
        """A row that is not finite would hide others. Raises IndexCorrupt if one counts."""
        infinite = start + np.flatnonzero(~np.isfinite(scores))
        if len(infinite):
            self.file.read(infinite[~self.dead[infinite]])
            scores[infinite - start] = -np.inf

    # ── reading ──────────────────────────────────────────────────────────────────────────────────

    def find_slots(self, chunk_ids: IntArray) -> IntArray:
        """The slots of these chunks, in the order of the file. Unknown ids are ignored."""
        known = self.chunk_slots
        ids = self.chunk_ids[known]
        positions = np.searchsorted(ids, np.unique(chunk_ids))
        positions = positions[positions < len(ids)]
        found: IntArray = known[positions[np.isin(ids[positions], chunk_ids)]]
        return found

    def read_chunks(self, slots: IntArray) -> VectorRows:
        """Rows with their ids. Raises IndexCorrupt if one is damaged."""
        return VectorRows(self.chunk_ids[slots], self.page_ids[slots], self.file.read(slots))

    def read_intact(self, chunk_ids: IntArray) -> dict[int, FloatArray]:
        """The vectors of those of these chunks that are not damaged, by id."""
        slots, vectors = self.file.read_intact(self.find_slots(chunk_ids))
        return dict(zip(self.chunk_ids[slots].tolist(), vectors, strict=True))

    def read_pages(self, page_ids: IntArray) -> VectorRows:
        """The vectors of all chunks of these pages (sorted ids), by chunk id."""
        return self.read_chunks(np.sort(self._find_page_rows(page_ids)[0]))

    def read_means(self, page_ids: IntArray) -> FloatArray:
        """The mean of the vectors of each of these pages (sorted ids) as a unit vector; zeros without chunks."""
        _, mean_slots, counts = self._find_page_rows(page_ids)
        means = np.zeros((len(page_ids), self.file.dimensions), np.float32)
        known = np.flatnonzero(counts)
        vectors = self.file.read(mean_slots[known])
        single = counts[known] == 1  # the only chunk, whose vector is rounded
        vectors[single] /= np.sqrt(np.vecdot(vectors[single], vectors[single]))[:, None]
        means[known] = vectors
        return means

    def find_fault(self, chunk_count: int) -> str:
        """Why the rows are not those of an index with this number of chunks, or an empty text. Reads only ids."""
        if len(self) != chunk_count:
            return f"it has {chunk_count} chunks and {len(self)} vectors"
        ids = self.live_ids
        return "" if bool((ids[1:] > ids[:-1]).all()) else "the ids of its vectors are not in order"

    def require_intact(self, chunk_count: int) -> None:
        """Raise IndexCorrupt for what `find_fault` finds."""
        fault = self.find_fault(chunk_count)
        if fault:
            raise make_damaged_error(fault)

    def _find_page_rows(self, page_ids: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """The slots of the chunks of these pages, and for each page the slot of its mean and its number of rows.

        The last row of a page is its mean or, if it has only one row, its only chunk.
        """
        order, ordered = self._page_order
        starts, ends = np.searchsorted(ordered, page_ids), np.searchsorted(ordered, page_ids, side="right")
        counts = ends - starts
        chunks = np.where(counts > 1, counts - 1, counts)
        before = np.cumsum(chunks) - chunks
        positions = np.repeat(starts - before, chunks) + np.arange(int(chunks.sum()))
        means = order[np.maximum(ends - 1, 0)] if len(order) else np.zeros(len(page_ids), np.int64)
        return order[positions], means, counts


def has_mean(chunk_count: int) -> bool:
    """Whether a page with this number of chunks has a row with their mean."""
    return chunk_count > 1


def count_rows(chunk_count: int) -> int:
    """The number of rows of a page."""
    return chunk_count + has_mean(chunk_count)
