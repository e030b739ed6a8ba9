"""Reads pages of a generation with all that belongs to them, to check, copy and move them."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wikiholt.domain.index import FloatArray, PageContents, round_vectors
from wikiholt.domain.page import Link
from wikiholt.storage.checksums import compute_page_checksum, encode_page_parts
from wikiholt.storage.page_table import CONTENTS_COLUMNS, PageRow, to_page_contents
from wikiholt.storage.postgres import rows
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import ChunkRow, DerivedPageColumns, LinkRow
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite.rows import decode_strings, encode_vectors

Row = tuple[Any, ...]

_BATCH_PAGES = 100
_PAGE_COLUMNS = ", ".join((*PageRow._fields, *DerivedPageColumns._fields))


@dataclass(frozen=True, slots=True)
class FullPage:
    """A page with its chunks, vectors, tags and links, and its derived columns as stored."""

    page: PageRow
    chunks: Sequence[ChunkRow]
    vectors: FloatArray
    tags: Sequence[str]
    links: Sequence[LinkRow]
    derived: DerivedPageColumns

    @property
    def vector_rows(self) -> list[Row]:
        return make_vector_rows(self.chunks, self.vectors)

    def compute_checksum(self) -> int:
        """Compute the checksum of the rows as they are now."""
        parts = encode_page_parts(self.page.id, self.chunks, self.vector_rows, self.tags, self.links)
        return compute_page_checksum(self.page, parts)


def make_vector_rows(chunks: Sequence[ChunkRow], vectors: FloatArray) -> list[Row]:
    """Make the vector rows of a page as the SQLite store has them; the checksum covers this form.

    A vector that is not rounded is damaged. Its row has all of its bits, so that the checksum differs.
    """
    encoded = encode_vectors(vectors)
    if not np.array_equal(round_vectors(vectors), vectors):
        encoded = [vector.tobytes() for vector in vectors]
    return [(chunk.id, chunk.page_id, vector) for chunk, vector in zip(chunks, encoded, strict=True)]


def iter_full_pages(db: Connection, tables: GenerationTables, dimensions: int) -> Iterator[FullPage]:
    """Yield every page in order of id, read in batches. Call inside a snapshot."""
    sql = f"SELECT {_PAGE_COLUMNS} FROM {tables.pages} WHERE id > %s ORDER BY id LIMIT {_BATCH_PAGES:d}"
    last_id = 0
    while batch := db.execute(sql, (last_id,), binary=True).fetchall():
        pages = [_split_page_row(rows.decode_row(row)) for row in batch]
        last_id = pages[-1][0].id
        yield from _add_chunks(db, tables, dimensions, pages)


def read_full_pages(
    db: Connection, tables: GenerationTables, dimensions: int, files: Sequence[str]
) -> Iterator[FullPage]:
    """Yield the pages with these files. Call inside a snapshot."""
    sql = f"SELECT {_PAGE_COLUMNS} FROM {tables.pages} WHERE file = ANY(%s)"
    names = [rows.encode_text(file) for file in files]
    pages = [_split_page_row(rows.decode_row(row)) for row in db.execute(sql, (names,), binary=True).fetchall()]
    yield from _add_chunks(db, tables, dimensions, pages)


def read_page_contents(db: Connection, tables: GenerationTables, files: Sequence[str]) -> dict[str, PageContents]:
    """What a move of these pages may change, by file."""
    sql = f"SELECT links, {CONTENTS_COLUMNS} FROM {tables.pages} WHERE file = ANY(%s)"
    contents: dict[str, PageContents] = {}
    for row in db.execute(sql, ([rows.encode_text(file) for file in files],), binary=True):
        packed, *page = rows.decode_row(row)
        links = (
            Link(link.target, link.text, link.line, bool(link.wiki), decode_strings(link.paths))
            for link in rows.decode_links(packed)
        )
        contents[page[0]] = to_page_contents(page, links)
    return contents


def _add_chunks(
    db: Connection,
    tables: GenerationTables,
    dimensions: int,
    pages: Sequence[tuple[PageRow, DerivedPageColumns]],
) -> Iterator[FullPage]:
    chunks = _read_chunks(db, tables, [page.id for page, _ in pages])
    for page, derived in pages:
        yield _make_full_page(page, derived, chunks[page.id], dimensions)


def _split_page_row(row: Row) -> tuple[PageRow, DerivedPageColumns]:
    size = len(PageRow._fields)
    return PageRow._make(row[:size]), DerivedPageColumns._make(row[size:])


def _read_chunks(
    db: Connection, tables: GenerationTables, page_ids: list[int]
) -> defaultdict[int, list[tuple[ChunkRow, bytes]]]:
    """Read the chunks of pages, by page, each with its encoded vector."""
    sql = (
        f"SELECT {', '.join(ChunkRow._fields)}, vector FROM {tables.chunks} WHERE page_id = ANY(%s)"
        " ORDER BY page_id, number"
    )
    chunks: defaultdict[int, list[tuple[ChunkRow, bytes]]] = defaultdict(list)
    for *columns, vector in db.execute(sql, (page_ids,), binary=True):
        chunk = ChunkRow._make(rows.decode_row(columns))
        chunks[chunk.page_id].append((chunk, vector))
    return chunks


def _make_full_page(
    page: PageRow, derived: DerivedPageColumns, chunks: Sequence[tuple[ChunkRow, bytes]], dimensions: int
) -> FullPage:
    tags = sorted({tag.casefold() for tag in decode_strings(page.tags)})
    links = rows.decode_links(derived.links)
    vectors = rows.decode_vectors([vector for _, vector in chunks], dimensions)
    return FullPage(page, [chunk for chunk, _ in chunks], vectors, tags, links, derived)
