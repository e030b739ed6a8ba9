"""Checksums of an index's rows. SQLite detects a torn file, but not a flipped bit inside a row.

Both stores compute them over the same values, so that a copy from one store to the other keeps its checksums.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from wikiholt.domain.page import PageProblem
from wikiholt.domain.search import StoredPage
from wikiholt.index.page_table import (
    ANSWER_COLUMNS,
    PageRow,
    get_answer_values,
    get_checksum_values,
    to_stored_page,
)
from wikiholt.index.rows import (
    CHUNK_COLUMNS,
    FULL_CHUNKS,
    Row,
    compute_row_checksum,
    decode_full_chunks,
    encode_row,
    is_row_intact,
    translate_damage,
)

_PAGE_QUERY = "SELECT * FROM full_pages WHERE id = ?"
_CHUNK_QUERY = f"{FULL_CHUNKS} WHERE page_id = ? ORDER BY number"
_TAG_QUERY = "SELECT tag FROM tags WHERE page_id = ? ORDER BY tag"
_LINK_QUERY = "SELECT target, text, line, wiki, paths, key, other_key FROM links WHERE page_id = ? ORDER BY rowid"
_STATE_QUERY = "SELECT version, revision, synced_at, vector_file, vector_rows, vector_since FROM state"
_WRITE_CHECKSUMS = "INSERT OR REPLACE INTO checksums (page_id, page_row, full_page) VALUES (?, ?, ?)"
CHECKED_PAGES = f"SELECT {ANSWER_COLUMNS}, page_row FROM pages LEFT JOIN checksums ON page_id = pages.id"
"""The rows of `to_checked_page`."""
_STATE_PAGE_ID = 0
"""The checksum of the state is stored like that of a page with this id."""


def compute_problem_checksum(problem: PageProblem) -> int:
    return compute_row_checksum((problem.file, problem.blob, problem.reason, problem.detail))


def encode_page_parts(
    page_id: int, chunks: Iterable[Row], vectors: Iterable[Row], tags: Iterable[str], links: Iterable[Row]
) -> bytes:
    """The bytes of all that belongs to a page, for its checksum. `links` come without the page id.

    Rows are in the column order of the SQLite tables. Only the last column of chunks and vectors is binary.
    """
    parts: list[Any] = []
    for chunk_id, owner_id, number, text, path, anchor, first_line, last_line, digest in chunks:
        values = f"{chunk_id!r}{owner_id!r}{number!r}{text!r}{path!r}{anchor!r}{first_line!r}{last_line!r}"
        parts += values.encode("utf-8", "surrogatepass"), digest
    for chunk_id, owner_id, vector in vectors:
        parts += f"{chunk_id!r}{owner_id!r}".encode("utf-8", "surrogatepass"), vector
    own_id = repr(page_id)
    others = [*map(repr, tags), *(own_id + "".join(map(repr, link)) for link in links)]
    parts.append("".join(others).encode("utf-8", "surrogatepass"))
    # In a damaged row a binary value may have another type.
    return b"".join([part if type(part) is bytes else repr(part).encode("utf-8", "surrogatepass") for part in parts])


def compute_page_checksum(page: Row, parts: bytes) -> int:
    """The checksum of a page row and of what `encode_page_parts` made of the rest."""
    return zlib.crc32(parts, zlib.crc32(encode_row(get_checksum_values(page))))


def write_page_checksum(db: sqlite3.Connection, page_id: int) -> None:
    """Record the checksums of a page: of its row, and of all that belongs to it."""
    page = PageRow._make(db.execute(_PAGE_QUERY, (page_id,)).fetchone())
    write_checksums(db, [(page, compute_page_checksum(page, read_page_parts(db, page_id)))])


def write_checksums(db: sqlite3.Connection, pages: Iterable[tuple[PageRow, int]]) -> None:
    """Record the checksums of pages, given as `compute_page_checksum` returns them."""
    checksums = [(page.id, compute_row_checksum(get_answer_values(page)), checksum) for page, checksum in pages]
    db.executemany(_WRITE_CHECKSUMS, checksums)


def write_state_checksum(db: sqlite3.Connection) -> None:
    """Record the checksum of the index's version and revision."""
    checksum = compute_row_checksum(db.execute(_STATE_QUERY).fetchone())
    db.execute(_WRITE_CHECKSUMS, (_STATE_PAGE_ID, 0, checksum))


def is_state_corrupt(db: sqlite3.Connection) -> bool:
    """Whether the version or revision does not match its checksum."""
    checksum = db.execute("SELECT full_page FROM checksums WHERE page_id = ?", (_STATE_PAGE_ID,)).fetchone()
    state = db.execute(_STATE_QUERY).fetchone()
    return state is None or checksum != (compute_row_checksum(state),)


@translate_damage
@lru_cache(maxsize=2048)
def to_checked_page(row: Row) -> StoredPage:
    """Decode a row of `CHECKED_PAGES`. Raises IndexCorrupt if it does not match its checksum."""
    *values, checksum = row
    if compute_row_checksum(values) != checksum:
        raise ValueError(f"page {values[0]} is not as it was written")
    return to_stored_page(values[:-1])


def find_checksum_faults(db: sqlite3.Connection) -> Iterator[str]:
    """Describe the pages, problems and state that do not match their checksums, or else chunks."""
    if is_state_corrupt(db):
        yield "its version or revision is not as it was written"
    are_pages_intact = True
    sql = "SELECT id, page_row, full_page FROM pages LEFT JOIN checksums ON page_id = pages.id"
    for page_id, *checksums in db.execute(sql):
        if checksums != _compute_stored_checksums(db, page_id):
            are_pages_intact = False
            yield f"page {page_id} is not as it was written"
    for *columns, checksum in db.execute("SELECT file, blob, reason, detail, checksum FROM problems"):
        if checksum != compute_problem_checksum(PageProblem(*columns)):
            yield "a problem is not as it was written"
    # Those of a page are covered by its checksum too, but not their own checksums.
    for row in db.execute(f"SELECT {CHUNK_COLUMNS} FROM chunks") if are_pages_intact else ():
        if not is_row_intact(row):
            yield f"chunk {row[0]} is not as it was written"


def read_page_parts(db: sqlite3.Connection, page_id: int) -> bytes:
    """All that belongs to a page, encoded by `encode_page_parts`."""
    chunks = decode_full_chunks(db.execute(_CHUNK_QUERY, (page_id,)))
    links = db.execute(_LINK_QUERY, (page_id,))
    tags = [tag for (tag,) in db.execute(_TAG_QUERY, (page_id,))]
    return encode_page_parts(page_id, chunks, (), tags, links)


def _compute_stored_checksums(db: sqlite3.Connection, page_id: int) -> list[int]:
    """The checksums of a page's row and of the full page, as they should be."""
    row = db.execute(_PAGE_QUERY, (page_id,)).fetchone()
    if row is None:  # without its words, a page is not in the view
        return []
    page = PageRow._make(row)
    return [
        compute_row_checksum(get_answer_values(page)),
        compute_page_checksum(page, read_page_parts(db, page_id)),
    ]
