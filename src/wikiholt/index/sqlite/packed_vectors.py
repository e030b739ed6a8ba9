"""The vectors of a copy of an index: a table, so that a copy is one file. An import writes them to a file again."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from wikiholt.domain.index import FloatArray, VectorRows
from wikiholt.errors import IndexCorrupt
from wikiholt.index import rows
from wikiholt.index.sqlite.connections import select_in_batches
from wikiholt.index.sqlite.schema import write_state_checksum
from wikiholt.index.sqlite.vector_file import (
    VectorFileHeader,
    append_rows,
    compute_row_checksums,
    make_damaged_error,
)
from wikiholt.index.sqlite.vectors import (
    PACKED_FILE,
    VECTOR_COLUMNS,
    VectorState,
    VectorTable,
    get_vector_path,
    join_rows,
    with_mean,
)

_CREATE_TABLE = "CREATE TABLE packed_vectors (chunk_id INTEGER PRIMARY KEY, crc INTEGER NOT NULL, vector BLOB NOT NULL)"
_SELECT = "SELECT chunks.id, chunks.page_id, vector, crc FROM chunks LEFT JOIN packed_vectors ON chunk_id = chunks.id"
_BATCH_ROWS = 4_096


def create_table(copy: sqlite3.Connection) -> None:
    copy.execute(_CREATE_TABLE)


def pack_table(copy: sqlite3.Connection, table: VectorTable) -> None:
    """Write the vectors of an index to a copy of it."""
    create_table(copy)
    for start in range(0, len(table.chunk_slots), _BATCH_ROWS):
        pack_rows(copy, table.read_chunks(table.chunk_slots[start : start + _BATCH_ROWS]))
    write_packed_state(copy)


def pack_rows(copy: sqlite3.Connection, chunks: VectorRows) -> None:
    """Write the vectors of some chunks to a copy."""
    checksums, encoded = compute_row_checksums(chunks).tolist(), rows.encode_vectors(chunks.vectors)
    values = zip(chunks.chunk_ids.tolist(), checksums, encoded, strict=True)
    copy.executemany("INSERT INTO packed_vectors (chunk_id, crc, vector) VALUES (?, ?, ?)", values)


def write_packed_state(copy: sqlite3.Connection) -> None:
    """Say in the table `state` that all vectors are in the copy."""
    write_vector_state(copy, VectorState(PACKED_FILE, 0, 0, 0))


def unpack(copy: sqlite3.Connection, index_file: Path, header: VectorFileHeader) -> None:
    """Move the vectors of a copy to the first file of vectors of an index. Raises IndexCorrupt and OSError."""
    written = 0
    for added in _join_pages(_iter_pages(copy, header.dimensions), header.dimensions):
        append_rows(get_vector_path(index_file, 1), header, written, added)
        written += len(added.chunk_ids)
    copy.execute("DROP TABLE packed_vectors")
    (version,) = copy.execute("SELECT version FROM state").fetchone()
    write_vector_state(copy, VectorState(1, written, 0, version))


def write_vector_state(db: sqlite3.Connection, state: VectorState) -> None:
    """Record what the table `state` says about vectors, and its checksum."""
    db.execute(f"UPDATE state SET ({VECTOR_COLUMNS}) = (?, ?, ?, ?)", state)
    write_state_checksum(db)


def read_packed(copy: sqlite3.Connection, dimensions: int) -> Iterator[VectorRows]:
    """The vectors of a copy, by chunk id. Raises IndexCorrupt if one does not match its checksum."""
    cursor = copy.execute(f"{_SELECT} ORDER BY chunks.id")
    while batch := cursor.fetchmany(_BATCH_ROWS):
        if any(vector is None for _, _, vector, _ in batch):
            raise make_damaged_error("there are chunks without a vector")
        chunks = rows.to_vector_rows([row[:3] for row in batch], dimensions)
        if compute_row_checksums(chunks).tolist() != [crc for *_, crc in batch]:
            raise make_damaged_error("rows do not match their checksums")
        yield chunks


def read_intact(copy: sqlite3.Connection, chunk_ids: Sequence[int], dimensions: int) -> dict[int, FloatArray]:
    """The vectors of those of these chunks that are not damaged, by id."""
    found: dict[int, FloatArray] = {}
    for *row, crc in select_in_batches(copy, f"{_SELECT} WHERE chunks.id IN ({{0}})", chunk_ids):
        with suppress(IndexCorrupt):
            chunk = rows.to_vector_rows([row], dimensions)
            if compute_row_checksums(chunk)[0] == crc:
                found[row[0]] = chunk.vectors[0]
    return found


def read_page(copy: sqlite3.Connection, page_id: int, dimensions: int) -> FloatArray:
    """The vectors of the chunks of a page of a verified copy."""
    sql = "SELECT vector FROM chunks JOIN packed_vectors ON chunk_id = id WHERE page_id = ? ORDER BY number"
    return rows.decode_vectors([vector for (vector,) in copy.execute(sql, (page_id,))], dimensions)


def _iter_pages(copy: sqlite3.Connection, dimensions: int) -> Iterator[VectorRows]:
    """The rows of each page. The ids of its chunks follow each other."""
    chunks = (
        (int(page_id), chunk_id, vector)
        for part in read_packed(copy, dimensions)
        for chunk_id, page_id, vector in zip(part.chunk_ids, part.page_ids, part.vectors, strict=True)
    )
    for page_id, group in groupby(chunks, itemgetter(0)):
        _, chunk_ids, vectors = zip(*group, strict=True)
        yield with_mean(page_id, np.array(chunk_ids), np.array(vectors))


def _join_pages(pages: Iterable[VectorRows], dimensions: int) -> Iterator[VectorRows]:
    """Join pages to parts of about `_BATCH_ROWS`."""
    part: list[VectorRows] = []
    for page in pages:
        part.append(page)
        if sum(len(each.chunk_ids) for each in part) >= _BATCH_ROWS:
            yield join_rows(part, dimensions)
            part = []
    if part:
        yield join_rows(part, dimensions)
