"""Checksums of an index's rows. SQLite detects a torn file, but not a flipped bit inside a row.

Both stores compute them over the same values, so that a copy from one store to the other keeps its checksums.
"""

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

from wikiholt.domain.page import PageProblem
from wikiholt.storage.page_table import get_checksum_values
from wikiholt.storage.sqlite.rows import FULL_CHUNKS, Row, decode_full_chunks

_PAGE_QUERY = "SELECT * FROM full_pages WHERE id = ?"
_CHUNK_QUERY = f"{FULL_CHUNKS} WHERE page_id = ? ORDER BY number"
_TAG_QUERY = "SELECT tag FROM tags WHERE page_id = ? ORDER BY tag"
_LINK_QUERY = "SELECT target, text, line, wiki, paths, key, other_key FROM links WHERE page_id = ? ORDER BY rowid"
_STATE_QUERY = "SELECT version, horizon, revision, synced_at, vector_file, vector_rows, vector_since FROM state"
_STATE_PAGE_ID = 0
"""The checksum of the state is stored like that of a page with this id."""


def compute_row_checksum(row: Row) -> int:
    """The checksum of a row's values."""
    return zlib.crc32(_encode_row(row))


def _encode_row(row: Row) -> bytes:
    """The bytes of a row that its checksum covers."""
    binary = [index for index, kind in enumerate(map(type, row)) if kind is bytes]
    parts: list[bytes] = []
    start = 0
    # The values between two binary ones are encoded together: the bytes are the same, in a third of the time.
    for index in (*binary, len(row)):
        parts += "".join(map(repr, row[start:index])).encode("utf-8", "surrogatepass"), *row[index : index + 1]
        start = index + 1
    return b"".join(parts)


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
    return zlib.crc32(parts, zlib.crc32(_encode_row(get_checksum_values(page))))


def write_page_checksum(db: sqlite3.Connection, page_id: int) -> None:
    """Record the checksum of a page with its chunks, tags and links."""
    write_checksums(db, [(page_id, _compute_stored_page_checksum(db, page_id))])


def write_state_checksum(db: sqlite3.Connection) -> None:
    """Record the checksum of the index's version and revision."""
    write_checksums(db, [(_STATE_PAGE_ID, compute_row_checksum(db.execute(_STATE_QUERY).fetchone()))])


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


def write_checksums(db: sqlite3.Connection, checksums: Iterable[tuple[int, int]]) -> None:
    """Record checksums of pages, given with the ids of the pages."""
    db.executemany("INSERT OR REPLACE INTO seals (page_id, crc) VALUES (?, ?)", checksums)


def read_page_parts(db: sqlite3.Connection, page_id: int) -> bytes:
    """All that belongs to a page, encoded by `encode_page_parts`."""
    chunks = decode_full_chunks(db.execute(_CHUNK_QUERY, (page_id,)))
    links = db.execute(_LINK_QUERY, (page_id,))
    tags = [tag for (tag,) in db.execute(_TAG_QUERY, (page_id,))]
    return encode_page_parts(page_id, chunks, (), tags, links)


def _compute_stored_page_checksum(db: sqlite3.Connection, page_id: int) -> int:
    page = db.execute(_PAGE_QUERY, (page_id,)).fetchone()
    # Without its words, a page is not in the view.
    return compute_page_checksum(page, read_page_parts(db, page_id)) if page is not None else -1
