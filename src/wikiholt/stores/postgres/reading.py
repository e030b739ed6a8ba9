"""All that a generation holds, page by page, at one moment: for checking it and for copying it."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from wikiholt.model import Floats
from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.filing import CHUNK, PAGE, PAGE_MORE
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.sealing import page_seal
from wikiholt.stores.postgres.tables import Tables
from wikiholt.stores.sqlite.rows import strings, vector_blob

Row = tuple[Any, ...]

_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class WholePage:
    """A page with all that hangs on it, as the embedded store's columns have it, and what is derived from it here."""

    page: Row
    chunks: Sequence[Row]
    vectors: Floats
    tags: Sequence[str]
    links: Sequence[Row]
    tag_keys: Sequence[str]
    link_keys: Sequence[str]
    size: int
    terms: bytes
    seal: int

    @property
    def page_id(self) -> int:
        return int(self.page[0])

    @property
    def vector_rows(self) -> list[Row]:
        return [(chunk[0], chunk[1], vector_blob(one)) for chunk, one in zip(self.chunks, self.vectors, strict=True)]

    def sealed_as(self) -> int:
        """The seal of what is there."""
        return page_seal(self.page, self.chunks, self.vector_rows, self.tags, self.links)


def whole_pages(db: Connection, tables: Tables, dimensions: int) -> Iterator[WholePage]:
    """Every page in the order of ids, a few at a time; inside a snapshot."""
    sql = f"SELECT {', '.join((*PAGE, *PAGE_MORE))} FROM {tables.pages} WHERE id > %s ORDER BY id LIMIT {_AT_ONCE:d}"
    last = 0
    while block := db.execute(sql, (last,), binary=True).fetchall():
        chunks = _chunks(db, tables, last, block[-1][0])
        last = block[-1][0]
        for row in block:
            yield _whole(rows.meant_row(row), chunks[row[0]], dimensions)


def _chunks(db: Connection, tables: Tables, after: int, to: int) -> defaultdict[int, list[Row]]:
    sql = (
        f"SELECT {', '.join(CHUNK)}, vector FROM {tables.chunks} WHERE page_id > %s AND page_id <= %s"
        " ORDER BY page_id, number"
    )
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for row in db.execute(sql, (after, to), binary=True):
        found[row[1]].append(row)
    return found


def _whole(row: Row, chunks: Sequence[Row], dimensions: int) -> WholePage:
    page, (packed, *keys, size, terms, seal) = row[: len(PAGE)], row[len(PAGE) :]
    links = [tuple(link) for link in rows.unpack_links(packed)]
    tags = sorted({tag.casefold() for tag in strings(page[PAGE.index("tags")])})
    vectors = rows.vectors([chunk[-1] for chunk in chunks], dimensions)
    texts = [rows.meant_row(chunk[:-1]) for chunk in chunks]
    return WholePage(page, texts, vectors, tags, links, keys[0], keys[1], size, terms, seal)
