"""A page as rows, and rows on their way into a generation's tables: by COPY, in binary form."""

from collections.abc import Iterable, Sequence
from typing import Any

from wikiholt.model import FloatArray, PageEntry, PageProblem
from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.sealing import compute_page_checksum
from wikiholt.stores.postgres.tables import GenerationTables
from wikiholt.stores.sqlite import rows as packing
from wikiholt.stores.sqlite.seals import compute_problem_checksum

Row = tuple[Any, ...]

PAGE_FIELDS = (
    *("id", "file", "path", "name", "blob", "category", "category_key", "description", "language", "last_updated"),
    *("hidden", "tags", "warnings", "chunks", "words", "version", "key", "last_key", "word_count", "length"),
)
"""The columns of a page that the embedded store has too, in the order they are sealed in."""
DERIVED_PAGE_FIELDS = ("links", "tag_keys", "link_keys", "size", "terms", "seal")
CHUNK_FIELDS = ("id", "page_id", "number", "text", "heading_path", "anchor", "first_line", "last_line", "hash")

# A tsvector and a vector come in the binary form they travel in, so they are given as bytes.
_PAGE_TYPES = (
    *("int8", "text", "text", "text", "text", "text", "text", "text", "text", "float8"),
    *("int4", "text", "text", "int4", "bytea", "int8", "text", "text", "int4", "int8"),
    *("text", "text[]", "text[]", "int8", "bytea", "int8"),
)
_CHUNK_TYPES = ("int8", "int8", "int4", "text", "text", "text", "int4", "int4", "bytea", "bytea")


def make_chunk_rows(page_id: int, first_id: int, entry: PageEntry) -> list[Row]:
    """The chunks of a page, with ids from `first` on."""
    found = []
    for at, (chunk, digest, _) in enumerate(zip(entry.chunks, entry.hashes, entry.vectors, strict=True)):
        path, lines = packing.encode_strings(chunk.heading_path), (chunk.first_line, chunk.last_line)
        found.append((first_id + at, page_id, chunk.index, chunk.text, path, chunk.anchor, *lines, digest))
    return found


def make_page_row(page: Row, chunks: Sequence[Row], vectors: FloatArray, tags: Sequence[str], links: Sequence[Row]) -> Row:
    """The whole row of a page, from what the embedded store keeps of one."""
    terms = rows.build_term_vector(packing.decode_terms(page[PAGE_FIELDS.index("words")]))
    blobs = [(chunk[0], chunk[1], packing.encode_vector(one)) for chunk, one in zip(chunks, vectors, strict=True)]
    seal = compute_page_checksum(page, chunks, blobs, tags, links)
    keys = sorted({rows.encode_key(tag) for tag in tags}), rows.get_link_keys(links)
    return (*page, rows.encode_links(links), *keys, terms.size, terms.tsvector, seal)


def copy_pages(db: Connection, tables: GenerationTables, pages: Iterable[Row]) -> None:
    _copy_rows(db, tables.pages, (*PAGE_FIELDS, *DERIVED_PAGE_FIELDS), _PAGE_TYPES, pages)


def copy_chunks(db: Connection, tables: GenerationTables, chunks: Iterable[Row]) -> None:
    """Rows of chunks, each with its vector as `rows.vector_fields` gives it."""
    _copy_rows(db, tables.chunks, (*CHUNK_FIELDS, "vector"), _CHUNK_TYPES, chunks)


def copy_problems(db: Connection, tables: GenerationTables, problems: Iterable[PageProblem]) -> None:
    found = ((each.file, each.blob, each.reason, each.detail, compute_problem_checksum(each)) for each in problems)
    names, types = ("file", "blob", "reason", "detail", "seal"), ("text", "text", "text", "text", "int8")
    _copy_rows(db, tables.problems, names, types, found)


def copy_dropped(db: Connection, tables: GenerationTables, dropped: Iterable[Row]) -> None:
    _copy_rows(db, tables.dropped, ("version", "chunk_id", "page_id"), ("int8", "int8", "int8"), dropped)


def _copy_rows(db: Connection, table: str, names: Sequence[str], types: Sequence[str], records: Iterable[Row]) -> None:
    order = f"COPY {table} ({', '.join(names)}) FROM STDIN (FORMAT binary)"
    with db.cursor() as cursor, cursor.copy(order) as copy:
        copy.set_types(types)
        for row in records:
            copy.write_row([rows.encode_text(value) if isinstance(value, str) else value for value in row])
