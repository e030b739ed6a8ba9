"""The vectors of one index: what its transactions say about the file of vectors, and searches among its rows.

Rows are on the disk before the transaction that counts them commits. Dead rows are removed by writing the others to
another file, which that transaction names; readers keep the old one. A table of the rows at one version is immutable,
so a search sees one version from start to end.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import FloatArray, IntArray, VectorHits, VectorRows, compute_page_means
from wikiholt.errors import MissingDependency
from wikiholt.index.rows import to_id_array
from wikiholt.index.sqlite import vector_codes
from wikiholt.index.sqlite.connections import translate_os_errors
from wikiholt.index.sqlite.vector_codes import CodesFile, QuantizedCodes, VectorCodes, select_best
from wikiholt.index.sqlite.vector_file import (
    MEAN_ID,
    VectorFile,
    VectorFileHeader,
    append_rows,
    count_complete_rows,
    make_damaged_error,
)

_LOG = logging.getLogger(__name__)

_MIN_DEAD_ROWS = 64
_MAX_DEAD_SHARE = 1 / 3
_WRITE_ROWS = 8_192
_REPLACED_S = 600.0
"""How long a file that was replaced is kept: a reader may be about to open it."""
_MAX_GATHERED_ROWS = 4_000
"""Up to this many rows of allowed pages are scored one by one; above, all rows are."""
_NO_IDS: IntArray = np.empty(0, np.int64)

CodesChoice = Callable[[int], type[VectorCodes]]
"""Chooses the kind of codes for a number of rows. Raises MissingDependency."""


def choose_quantized(_: int) -> type[VectorCodes]:
    return QuantizedCodes


class VectorState(NamedTuple):
    """What the table `state` says about the file of vectors."""

    number: int
    """The number in its name."""
    rows: int
    """How many of its rows count."""
    dead: int
    """How many of these belong to deleted chunks."""
    since: int
    """The version that wrote its first row: `dropped` has all its dead chunks since."""


PACKED_FILE = 0
"""The number of the file of vectors that a copy has instead."""
VECTOR_COLUMNS = "vector_file, vector_rows, vector_dead, vector_since"
"""The columns of `VectorState` in the table `state`."""


def read_vector_state(db: sqlite3.Connection) -> VectorState:
    return VectorState._make(db.execute(f"SELECT {VECTOR_COLUMNS} FROM state").fetchone())


def is_packed(db: sqlite3.Connection) -> bool:
    """Whether an index file is a copy with the vectors in it."""
    return read_vector_state(db).number == PACKED_FILE


def get_vector_path(index_file: Path, number: int) -> Path:
    return index_file.with_name(f"{index_file.stem}-{number}.vectors")


def _read_dropped(db: sqlite3.Connection, version: int) -> IntArray:
    sql = "SELECT chunk_id FROM dropped WHERE version > ?"
    return to_id_array(db.execute(sql, (version,)).fetchall())


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
        lengths = np.sqrt(np.vecdot(vectors[single], vectors[single]))[:, None]
        vectors[single] /= np.where(lengths > 0, lengths, 1)  # it is 0 until the chunk is embedded
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


class IndexVectors:
    """Reads the vectors of an index. Keeps the table of the last version that was read."""

    def __init__(
        self, index_file: Path, header: VectorFileHeader, choose_codes: CodesChoice, *, check: bool = True
    ) -> None:
        """Without `check`, rows that are lost are left out."""
        self._index_file = index_file
        self._header = header
        self._choose_codes = choose_codes
        self._check = check
        self._known: tuple[int, VectorTable] | None = None
        """The number of the file, and the table."""
        self._lock, self._process_id = Lock(), os.getpid()

    def get_known(self, version: int) -> VectorTable | None:
        """The vectors at this version, if that was the last one that was read."""
        known = self._known
        return known[1] if known is not None and known[1].version == version else None

    def release(self) -> None:
        """Forget the table. Its files are closed when no search reads them any more."""
        self._known = None

    def read(self, db: sqlite3.Connection) -> VectorTable:
        """The vectors at the version of the open snapshot. Raises IndexCorrupt."""
        version, *columns = db.execute(f"SELECT version, {VECTOR_COLUMNS} FROM state").fetchone()
        if self._process_id != os.getpid():  # the thread that holds the lock may not exist in a forked child
            self._lock, self._process_id = Lock(), os.getpid()
        with self._lock:
            return self._load(db, version, VectorState._make(columns))

    def _load(self, db: sqlite3.Connection, version: int, state: VectorState) -> VectorTable:
        if not self._check:
            state = state._replace(rows=count_complete_rows(self._get_path(state), self._header, state.rows))
        number, known = self._known or (-1, None)
        if known is not None and known.version == version:
            return known
        if known is None or number != state.number or known.version > version or len(known.chunk_ids) > state.rows:
            known = None
        file = known.file if known is not None and known.file.capacity >= state.rows else self._open(state)
        dropped = _read_dropped(db, state.since if known is None else known.version)
        table = VectorTable(file, state.rows, version, dropped, known, self._open_codes(state))
        if known is None and self._check:
            table.require_intact(db.execute("SELECT count(*) FROM chunks").fetchone()[0])
        last = self._known  # another thread may release it
        if last is None or last[1].version <= version:
            self._known = state.number, table
        return table

    def _get_path(self, state: VectorState) -> Path:
        return get_vector_path(self._index_file, state.number)

    def _open(self, state: VectorState) -> VectorFile:
        return VectorFile(self._get_path(state), self._header, state.rows)

    def _open_codes(self, state: VectorState) -> VectorCodes | None:
        if state.rows <= vector_codes.CODED_MIN_ROWS:
            return None
        codes = self._get_codes_file(state).open(state.rows)
        return codes if codes is not None and codes.is_useful else None

    def _get_codes_file(self, state: VectorState) -> CodesFile:
        return CodesFile(self._get_path(state), self._header, self._choose_codes(state.rows))

    def update_codes(self, db: sqlite3.Connection) -> None:
        """Make the codes of all rows if too many have none. Only for the writer, whose rows are all committed."""
        state = read_vector_state(db)
        if state.rows <= vector_codes.CODED_MIN_ROWS:
            return
        codes = self._get_codes_file(state)
        if not codes.is_needed(state.rows):
            return
        table = self.read(db)
        try:
            codes.write(table.file, state.rows, table.chunk_slots)
        except (OSError, ValueError) as error:
            _LOG.warning("the codes of vectors could not be written, so searches compare all vectors: %s", error)
        self._known = None

    def remove_damaged_codes(self, db: sqlite3.Connection) -> None:
        """Compare the checksum of the codes. Without them, searches compare all vectors."""
        state = read_vector_state(db)
        with suppress(MissingDependency):
            self._get_codes_file(state).remove_damaged()


class VectorWriter:
    """Collects the vectors that a transaction adds and removes, and writes them before it commits."""

    def __init__(self, db: sqlite3.Connection, index_file: Path, header: VectorFileHeader) -> None:
        self._db = db
        self._index_file = index_file
        self._header = header
        self._added: list[VectorRows] = []
        self._dropped = 0

    def add_page(self, page_id: int, chunk_ids: Sequence[int], vectors: FloatArray) -> None:
        """Add the vectors of a page's chunks, which have the next unused ids, and their mean."""
        self._added.append(with_mean(page_id, chunk_ids, vectors))

    def drop_page(self, chunk_count: int) -> None:
        """Count the rows of a page whose chunks are deleted."""
        self._dropped += count_rows(chunk_count)

    def write(self, state: VectorState, version: int) -> VectorState:
        """Write the rows to the disk, and return what the transaction has to say about them in the table `state`."""
        if not self._added and not self._dropped:
            return state
        state = state._replace(dead=state.dead + self._dropped)
        _remove_replaced_files(self._index_file, state.number)
        with translate_os_errors():
            if self._added:
                added = join_rows(self._added, self._header.dimensions)
                append_rows(get_vector_path(self._index_file, state.number), self._header, state.rows, added)
                state = state._replace(rows=state.rows + len(added.chunk_ids))
            if state.dead > max(_MIN_DEAD_ROWS, state.rows * _MAX_DEAD_SHARE):
                state = VectorState(state.number + 1, self._compact(state), 0, version)
                self._db.execute("DELETE FROM dropped WHERE version <= ?", (version,))
        return state

    def _compact(self, state: VectorState) -> int:
        """Write the rows that are not dead to the next file, and return their number."""
        file = VectorFile(get_vector_path(self._index_file, state.number), self._header, state.rows)
        table = VectorTable(file, state.rows, 0, _read_dropped(self._db, state.since))
        slots, target = table.live_slots, get_vector_path(self._index_file, state.number + 1)
        os.utime(get_vector_path(self._index_file, state.number))  # the time of its replacement
        for start in range(0, len(slots), _WRITE_ROWS):
            append_rows(target, self._header, start, table.read_chunks(slots[start : start + _WRITE_ROWS]))
        return len(slots)


def with_mean(page_id: int, chunk_ids: Sequence[int] | IntArray, vectors: FloatArray) -> VectorRows:
    """The rows of a page: its chunks, and their mean if it has several."""
    rows = VectorRows(np.asarray(chunk_ids, np.int64), np.full(len(chunk_ids), page_id, np.int64), vectors)
    if not has_mean(len(chunk_ids)):
        return rows
    mean = VectorRows(np.array([MEAN_ID]), np.array([page_id]), compute_page_means(rows, np.array([page_id])))
    return join_rows([rows, mean], vectors.shape[1])


def join_rows(parts: Sequence[VectorRows], dimensions: int) -> VectorRows:
    return VectorRows(
        np.concatenate([np.empty(0, np.int64), *(part.chunk_ids for part in parts)]),
        np.concatenate([np.empty(0, np.int64), *(part.page_ids for part in parts)]),
        np.concatenate([np.empty((0, dimensions), np.float32), *(part.vectors for part in parts)]),
    )


def _remove_replaced_files(index_file: Path, number: int) -> None:
    """Remove files of vectors that another has replaced some time ago, with their codes."""
    for file in index_file.parent.glob(f"{index_file.stem}-*"):
        with suppress(OSError):
            is_other = not file.name.startswith(f"{index_file.stem}-{number}.")
            if is_other and time.time() - file.stat().st_mtime > _REPLACED_S:
                file.unlink()
