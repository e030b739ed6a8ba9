"""A page as rows, and rows on their way into a generation's tables: by COPY, in binary form."""

from collections.abc import Iterable, Sequence
from typing import Any

from wikiholt.model import Floats, PageEntry, Problem
from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.sealing import page_seal
from wikiholt.stores.postgres.tables import Tables
from wikiholt.stores.sqlite import rows as packing
from wikiholt.stores.sqlite.seals import problem_seal

Row = tuple[Any, ...]

PAGE = (
    *("id", "file", "path", "name", "blob", "category", "category_key", "description", "language", "last_updated"),
    *("hidden", "tags", "warnings", "chunks", "words", "version", "key", "last_key", "word_count", "length"),
)
"""The columns of a page that the embedded store has too, in the order they are sealed in."""
PAGE_MORE = ("links", "tag_keys", "link_keys", "size", "terms", "seal")
CHUNK = ("id", "page_id", "number", "text", "heading_path", "anchor", "first_line", "last_line", "hash")

# A tsvector and a vector come in the binary form they travel in, so they are given as bytes.
_PAGE_TYPES = (
    *("int8", "text", "text", "text", "text", "text", "text", "text", "text", "float8"),
    *("int4", "text", "text", "int4", "bytea", "int8", "text", "text", "int4", "int8"),
    *("text", "text[]", "text[]", "int8", "bytea", "int8"),
)
_CHUNK_TYPES = ("int8", "int8", "int4", "text", "text", "text", "int4", "int4", "bytea", "bytea")


def chunk_rows(page_id: int, first: int, entry: PageEntry) -> list[Row]:
    """The chunks of a page, with ids from `first` on."""
    found = []
    for at, (chunk, digest, _) in enumerate(zip(entry.chunks, entry.hashes, entry.vectors, strict=True)):
        path, lines = packing.packed(chunk.heading_path), (chunk.first_line, chunk.last_line)
        found.append((first + at, page_id, chunk.index, chunk.text, path, chunk.anchor, *lines, digest))
    return found


def sealed_page(page: Row, chunks: Sequence[Row], vectors: Floats, tags: Sequence[str], links: Sequence[Row]) -> Row:
    """The whole row of a page, from what the embedded store keeps of one."""
    terms = rows.terms_of(packing.unpack_words(page[PAGE.index("words")]))
    blobs = [(chunk[0], chunk[1], packing.vector_blob(one)) for chunk, one in zip(chunks, vectors, strict=True)]
    seal = page_seal(page, chunks, blobs, tags, links)
    keys = sorted({rows.indexed(tag) for tag in tags}), rows.link_keys(links)
    return (*page, rows.pack_links(links), *keys, terms.size, terms.field, seal)


def copy_pages(db: Connection, tables: Tables, pages: Iterable[Row]) -> None:
    _copy(db, tables.pages, (*PAGE, *PAGE_MORE), _PAGE_TYPES, pages)


def copy_chunks(db: Connection, tables: Tables, chunks: Iterable[Row]) -> None:
    """Rows of chunks, each with its vector as `rows.vector_fields` gives it."""
    _copy(db, tables.chunks, (*CHUNK, "vector"), _CHUNK_TYPES, chunks)


def copy_problems(db: Connection, tables: Tables, problems: Iterable[Problem]) -> None:
    found = ((each.file, each.blob, each.reason, each.detail, problem_seal(each)) for each in problems)
    names, types = ("file", "blob", "reason", "detail", "seal"), ("text", "text", "text", "text", "int8")
    _copy(db, tables.problems, names, types, found)


def copy_dropped(db: Connection, tables: Tables, dropped: Iterable[Row]) -> None:
    _copy(db, tables.dropped, ("version", "chunk_id", "page_id"), ("int8", "int8", "int8"), dropped)


def _copy(db: Connection, table: str, names: Sequence[str], types: Sequence[str], found: Iterable[Row]) -> None:
    order = f"COPY {table} ({', '.join(names)}) FROM STDIN (FORMAT binary)"
    with db.cursor() as cursor, cursor.copy(order) as copy:
        copy.set_types(types)
        for row in found:
            copy.write_row([rows.held(value) if isinstance(value, str) else value for value in row])
