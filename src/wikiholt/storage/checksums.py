"""Checksums of an index's rows. SQLite detects a torn file, but not a flipped bit inside a row.

Both stores compute them over the same values, so that a copy from one store to the other keeps its checksums.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import cast

from wikiholt.domain.page import PageProblem
from wikiholt.storage.page_table import get_checksum_values
from wikiholt.storage.sqlite.rows import FULL_CHUNKS, Row, split_full_chunks

_PAGE_QUERY = "SELECT * FROM full_pages WHERE id = ?"
_CHUNK_QUERY = f"{FULL_CHUNKS} WHERE chunks.page_id = ? ORDER BY number"
_PAGE_PART_QUERIES = (
    "SELECT tag FROM tags WHERE page_id = ? ORDER BY tag",
    "SELECT * FROM links WHERE page_id = ? ORDER BY rowid",
)
_STATE_QUERY = "SELECT version, horizon, revision, synced_at FROM state"
_STATE_PAGE_ID = 0
"""The checksum of the state is stored like that of a page with this id."""


def compute_row_checksum(row: Row, crc: int = 0) -> int:
    """The checksum of a row's values, continuing from `crc` of the rows before."""
    binary = [index for index, kind in enumerate(map(type, row)) if kind is bytes]
    start = 0
    # The values between two binary ones are encoded together: the checksum is the same, in a third of the time.
    for index in (*binary, len(row)):
        crc = zlib.crc32("".join(map(repr, row[start:index])).encode("utf-8", "surrogatepass"), crc)
        crc = zlib.crc32(cast(bytes, row[index]), crc) if index < len(row) else crc
        start = index + 1
    return crc


def compute_problem_checksum(problem: PageProblem) -> int:
    return compute_row_checksum((problem.file, problem.blob, problem.reason, problem.detail))


def compute_page_checksum(
    page: Row, chunks: Iterable[Row], vectors: Iterable[Row], tags: Iterable[str], links: Iterable[Row]
) -> int:
    """The checksum of a page: rows in the column order of the SQLite tables; `links` come without the page id."""
    page_id, *_ = page
    crc = compute_row_checksum(get_checksum_values(page))
    for chunk in chunks:
        crc = compute_row_checksum(chunk, crc)
    for vector in vectors:
        crc = compute_row_checksum(vector, crc)
    for tag in tags:
        crc = compute_row_checksum((tag,), crc)
    for link in links:
        crc = compute_row_checksum((page_id, *link), crc)
    return crc


def write_page_checksum(db: sqlite3.Connection, page_id: int) -> None:
    """Record the checksum of a page with its chunks, vectors, tags and links."""
    _write_checksum(db, page_id, _compute_stored_page_checksum(db, page_id))


def write_state_checksum(db: sqlite3.Connection) -> None:
    """Record the checksum of the index's version and revision."""
    _write_checksum(db, _STATE_PAGE_ID, compute_row_checksum(db.execute(_STATE_QUERY).fetchone()))


def is_state_corrupt(db: sqlite3.Connection) -> bool:
    """Whether the version or revision does not match its checksum."""
    checksum = db.execute("SELECT crc FROM seals WHERE page_id = ?", (_STATE_PAGE_ID,)).fetchone()
    state = db.execute(_STATE_QUERY).fetchone()
    return state is None or checksum != (compute_row_checksum(state),)


def find_checksum_faults(db: sqlite3.Connection) -> Iterator[str]:
    """Describe the pages, problems and state that do not match their checksums."""
    if is_state_corrupt(db):
        yield "its version or revision is not as it was written"
    for page_id, crc in db.execute("SELECT pages.id, crc FROM pages LEFT JOIN seals ON page_id = pages.id"):
        if crc != _compute_stored_page_checksum(db, page_id):
            yield f"page {page_id} is not as it was written"
    for *columns, crc in db.execute("SELECT file, blob, reason, detail, seal FROM problems"):
        if crc != compute_problem_checksum(PageProblem(*columns)):
            yield "a problem is not as it was written"


def _write_checksum(db: sqlite3.Connection, page_id: int, crc: int) -> None:
    db.execute("INSERT OR REPLACE INTO seals (page_id, crc) VALUES (?, ?)", (page_id, crc))


def _compute_stored_page_checksum(db: sqlite3.Connection, page_id: int) -> int:
    crc = 0
    for page in db.execute(_PAGE_QUERY, (page_id,)):
        crc = compute_row_checksum(get_checksum_values(page))
    chunks, vectors = split_full_chunks(db.execute(_CHUNK_QUERY, (page_id,)))
    for row in (*chunks, *vectors):
        crc = compute_row_checksum(row, crc)
    for sql in _PAGE_PART_QUERIES:
        for row in db.execute(sql, (page_id,)):
            crc = compute_row_checksum(row, crc)
    return crc
