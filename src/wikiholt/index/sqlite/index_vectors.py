"""The vectors of one index: what its transactions say about the file of vectors, and how both change together.

Rows are on the disk before the transaction that counts them commits. Dead rows are removed by writing the others to
another file, which that transaction names; readers keep the old one.
"""

import logging
import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import numpy as np

from wikiholt.domain.index import FloatArray, IntArray, VectorRows, compute_page_means
from wikiholt.errors import MissingDependency
from wikiholt.index.rows import to_id_array
from wikiholt.index.sqlite.errors import translate_os_errors
from wikiholt.index.sqlite.vector_codes import CodesFile, QuantizedCodes, VectorCodes
from wikiholt.index.sqlite.vector_file import (
    MEAN_ID,
    VectorFile,
    VectorFileHeader,
    append_rows,
    count_complete_rows,
)
from wikiholt.index.sqlite.vector_table import VectorTable, count_rows, has_mean

_LOG = logging.getLogger(__name__)

_MIN_DEAD_ROWS = 64
_MAX_DEAD_SHARE = 1 / 3
_WRITE_ROWS = 8_192
_REPLACED_S = 600.0
"""How long a file that was replaced is kept: a reader may be about to open it."""

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


VECTOR_COLUMNS = "vector_file, vector_rows, vector_dead, vector_since"
"""The columns of `VectorState` in the table `state`."""


def read_vector_state(db: sqlite3.Connection) -> VectorState:
    return VectorState._make(db.execute(f"SELECT {VECTOR_COLUMNS} FROM state").fetchone())


def get_vector_path(index_file: Path, number: int) -> Path:
    return index_file.with_name(f"{index_file.stem}-{number}.vectors")


def _read_dropped(db: sqlite3.Connection, version: int) -> IntArray:
    sql = "SELECT chunk_id FROM dropped WHERE version > ?"
    return to_id_array(db.execute(sql, (version,)).fetchall())


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
        self._lock = Lock()

    def get_known(self, version: int) -> VectorTable | None:
        """The vectors at this version, if that was the last one that was read."""
        known = self._known
        return known[1] if known is not None and known[1].version == version else None

    def release(self) -> None:
        """Forget the table. Its files are closed when no search reads them any more."""
        self._known = None

    def read(self, db: sqlite3.Connection, version: int) -> VectorTable:
        """The vectors at the version of the open snapshot. Raises IndexCorrupt."""
        with self._lock:
            return self._load(db, version)

    def _load(self, db: sqlite3.Connection, version: int) -> VectorTable:
        state = read_vector_state(db)
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
        codes = self._get_codes_file(state).open(state.rows)
        return codes if codes is not None and codes.is_useful else None

    def _get_codes_file(self, state: VectorState) -> CodesFile:
        return CodesFile(self._get_path(state), self._header, self._choose_codes(state.rows))

    def update_codes(self, db: sqlite3.Connection, version: int) -> None:
        """Make the codes of all rows if too many have none. Only for the writer, whose rows are all committed."""
        state = read_vector_state(db)
        codes = self._get_codes_file(state)
        if not codes.is_needed(state.rows):
            return
        table = self.read(db, version)
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

    def write(self, version: int) -> None:
        """Write the rows to the disk, and what the transaction has to say about them to the table `state`."""
        if not self._added and not self._dropped:
            return
        number, rows, dead, since = read_vector_state(self._db)
        dead += self._dropped
        _remove_replaced_files(self._index_file, number)
        with translate_os_errors():
            if self._added:
                added = join_rows(self._added, self._header.dimensions)
                append_rows(get_vector_path(self._index_file, number), self._header, rows, added)
                rows += len(added.chunk_ids)
            if dead > max(_MIN_DEAD_ROWS, rows * _MAX_DEAD_SHARE):
                rows = self._compact(VectorState(number, rows, dead, since))
                number, dead, since = number + 1, 0, version
        sql = "UPDATE state SET vector_file = ?, vector_rows = ?, vector_dead = ?, vector_since = ?"
        self._db.execute(sql, (number, rows, dead, since))

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
