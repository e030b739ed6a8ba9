"""All that a generation holds, page by page, at one moment: for checking it and for copying it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wikiholt.model import FloatArray
from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.filing import CHUNK_FIELDS, PAGE_FIELDS, DERIVED_PAGE_FIELDS
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.sealing import compute_page_checksum
from wikiholt.stores.postgres.tables import GenerationTables
from wikiholt.stores.sqlite.rows import decode_strings, encode_vector

Row = tuple[Any, ...]

_BATCH_PAGES = 100


@dataclass(frozen=True, slots=True)
class FullPage:
    """A page with all that hangs on it, as the embedded store's columns have it, and what is derived from it here."""

    page: Row
    chunks: Sequence[Row]
    vectors: FloatArray
    tags: Sequence[str]
    links: Sequence[Row]
    tag_keys: Sequence[str]
    link_keys: Sequence[str]
    size: int
    terms: bytes
    checksum: int

    @property
    def page_id(self) -> int:
        return int(self.page[0])

    @property
    def vector_rows(self) -> list[Row]:
        return [(chunk[0], chunk[1], encode_vector(one)) for chunk, one in zip(self.chunks, self.vectors, strict=True)]

    def compute_checksum(self) -> int:
        """The seal of what is there."""
        return compute_page_checksum(self.page, self.chunks, self.vector_rows, self.tags, self.links)


def iter_full_pages(db: Connection, tables: GenerationTables, dimensions: int) -> Iterator[FullPage]:
    """Every page in the order of ids, a few at a time; inside a snapshot."""
    sql = f"SELECT {', '.join((*PAGE_FIELDS, *DERIVED_PAGE_FIELDS))} FROM {tables.pages} WHERE id > %s ORDER BY id LIMIT {_BATCH_PAGES:d}"
    last = 0
    while block := db.execute(sql, (last,), binary=True).fetchall():
        chunks = _read_chunks(db, tables, last, block[-1][0])
        last = block[-1][0]
        for row in block:
            yield _make_full_page(rows.decode_row(row), chunks[row[0]], dimensions)


def _read_chunks(db: Connection, tables: GenerationTables, after: int, to: int) -> defaultdict[int, list[Row]]:
    sql = (
        f"SELECT {', '.join(CHUNK_FIELDS)}, vector FROM {tables.chunks} WHERE page_id > %s AND page_id <= %s"
        " ORDER BY page_id, number"
    )
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in db.execute(sql, (after, to), binary=True):
        found[row[1]].append(row)
    return found


def _make_full_page(row: Row, chunks: Sequence[Row], dimensions: int) -> FullPage:
    page, (packed, *keys, size, terms, seal) = row[: len(PAGE_FIELDS)], row[len(PAGE_FIELDS) :]
    links = [tuple(link) for link in rows.decode_links(packed)]
    tags = sorted({tag.casefold() for tag in decode_strings(page[PAGE_FIELDS.index("tags")])})
    vectors = rows.decode_vectors([chunk[-1] for chunk in chunks], dimensions)
    texts = [rows.decode_row(chunk[:-1]) for chunk in chunks]
    return FullPage(page, texts, vectors, tags, links, keys[0], keys[1], size, terms, seal)
