"""Checksums of what an index holds: SQLite notices a torn file, but not a bit that fell over inside a row."""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from wikiholt.domain.page import PageProblem

_PAGE_QUERIES = (
    "SELECT * FROM pages WHERE id = ?",
    "SELECT * FROM chunks WHERE page_id = ? ORDER BY number",
    "SELECT vectors.* FROM chunks JOIN vectors ON chunk_id = chunks.id WHERE chunks.page_id = ? ORDER BY number",
    "SELECT tag FROM tags WHERE page_id = ? ORDER BY tag",
    "SELECT * FROM links WHERE page_id = ? ORDER BY rowid",
)
_PAGE_QUERIES_SCHEMA_1 = (*_PAGE_QUERIES[:-1], "SELECT target, text, line FROM links WHERE page_id = ? ORDER BY rowid")
"""The same in an index of schema 1."""

_STATE_QUERY = "SELECT version, horizon, revision, synced_at FROM state"


def write_page_checksum(db: sqlite3.Connection, page_id: int) -> None:
    """Note the checksum of all that is stored of a page."""
    db.execute("INSERT OR REPLACE INTO seals VALUES (?, ?)", (page_id, _compute_stored_page_checksum(db, page_id)))


def write_state_checksum(db: sqlite3.Connection) -> None:
    """Note the checksum of where the index stands, as if that were page 0."""
    db.execute(
        "INSERT OR REPLACE INTO seals VALUES (0, ?)", (compute_row_checksum(db.execute(_STATE_QUERY).fetchone()),)
    )


def is_state_corrupt(db: sqlite3.Connection) -> bool:
    """Whether version or revision are not as they were written; an index from before there was this seal has none."""
    known = db.execute("SELECT crc FROM seals WHERE page_id = 0").fetchone()
    row = db.execute(_STATE_QUERY).fetchone()
    return row is None or (known is not None and compute_row_checksum(row) != known[0])


def compute_problem_checksum(problem: PageProblem) -> int:
    return compute_row_checksum((problem.file, problem.blob, problem.reason, problem.detail))


def compute_row_checksum(row: tuple[object, ...], crc: int = 0) -> int:
    """The checksum of a row's values, going on from that of the rows before."""
    for value in row:
        crc = zlib.crc32(value if isinstance(value, bytes) else repr(value).encode("utf-8", "surrogatepass"), crc)
    return crc


def find_checksum_faults(db: sqlite3.Connection) -> Iterator[str]:
    """The pages, the problems and the state that are not as they were written."""
    if is_state_corrupt(db):
        yield "its version or revision is not as it was written"
    (schema,) = db.execute("SELECT schema FROM state").fetchone()
    sealed = _PAGE_QUERIES if schema > 1 else _PAGE_QUERIES_SCHEMA_1
    for page_id, crc in db.execute("SELECT pages.id, crc FROM pages LEFT JOIN seals ON page_id = pages.id"):
        if crc != _compute_stored_page_checksum(db, page_id, sealed):
            yield f"page {page_id} is not as it was written"
    for *columns, crc in db.execute("SELECT file, blob, reason, detail, seal FROM problems"):
        if crc != compute_problem_checksum(PageProblem(*columns)):
            yield "a problem is not as it was written"


def _compute_stored_page_checksum(
    db: sqlite3.Connection, page_id: int, queries: tuple[str, ...] = _PAGE_QUERIES
) -> int:
    crc = 0
    for sql in queries:
        for row in db.execute(sql, (page_id,)):
            crc = compute_row_checksum(row, crc)
    return crc


# Checksums of what a generation holds: those of the embedded store, over the same values, so that copies keep them.


Row = tuple[Any, ...]


def compute_page_checksum(
    page: Row, chunks: Iterable[Row], vectors: Iterable[Row], tags: Iterable[str], links: Iterable[Row]
) -> int:
    """The checksum of all that is stored of a page: rows as the embedded store's tables have them, each in order."""
    crc = compute_row_checksum(page)
    for chunk in chunks:
        crc = compute_row_checksum(chunk, crc)
    for vector in vectors:
        crc = compute_row_checksum(vector, crc)
    for tag in tags:
        crc = compute_row_checksum((tag,), crc)
    for link in links:
        crc = compute_row_checksum((page[0], *link), crc)
    return crc
