"""Queries over the pages and chunks of a generation: filters, lists, links, facets and nearest chunks."""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from psycopg.adapt import Dumper
from psycopg.pq import Format

from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.domain.page import Facets
from wikiholt.domain.search import PageFilter, StoredLink, StoredPage
from wikiholt.storage import page_table
from wikiholt.storage.page_table import HAS_ALIAS, HAS_PROPERTIES, STORED_PAGE_COLUMNS, SqlDialect
from wikiholt.storage.postgres import rows
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.rows import encode_key, encode_text
from wikiholt.storage.postgres.schema import GenerationTables
from wikiholt.storage.sqlite.queries import count_facets

_POSTGRES = SqlDialect(
    "%s",
    has_tag="tag_keys @> ARRAY[?]::text[]",
    has_title="strpos(titles, ?) > 0",
    has_properties=f"({HAS_PROPERTIES} AND {{0}})",
    property_values="jsonb_array_elements_text(properties::jsonb #> ARRAY[?, '{0}']::text[]) AS item(value)",
    number="value::float8",
    encode_property=lambda name, _: encode_text(name),
    encode_text=encode_text,
    encode_key=encode_key,
)


def build_where_clause(where: PageFilter) -> tuple[str, list[object]]:
    """Build the SQL condition of a filter and its values. The condition is empty if every page matches."""
    return page_table.build_where_clause(where, _POSTGRES)


def list_pages(
    db: Connection, tables: GenerationTables, where: PageFilter, limit: int | None, offset: int
) -> tuple[int, Sequence[StoredPage]]:
    clause, values = build_where_clause(where)
    source = f"FROM {tables.pages} WHERE {clause or 'true'}"
    # A single statement sees a single version, so the count is joined to every row, or alone if no row is left.
    matches = db.execute(
        f"SELECT total.count, part.* FROM (SELECT count(*) {source}) AS total LEFT JOIN"
        f' (SELECT {STORED_PAGE_COLUMNS} {source} ORDER BY path, file COLLATE "C" LIMIT %s OFFSET %s) AS part ON true'
        ' ORDER BY part.path, part.file COLLATE "C"',
        (*values, *values, limit, offset),
    ).fetchall()
    total, *_ = matches[0]
    return total, [rows.to_stored_page(page) for _, *page in matches if page[0] is not None]


def find_pages_by_key(db: Connection, tables: GenerationTables, keys: Sequence[str]) -> Sequence[StoredPage]:
    encoded = [rows.encode_text(key) for key in keys]
    # Two parts, because only the first one can use indexes.
    sql = (
        f"SELECT {STORED_PAGE_COLUMNS} FROM {tables.pages} WHERE key = ANY(%s) OR last_key = ANY(%s)"
        f" UNION ALL SELECT {STORED_PAGE_COLUMNS} FROM {tables.pages} WHERE {HAS_ALIAS} AND EXISTS"
        " (SELECT 1 FROM jsonb_array_elements_text(alias_keys::jsonb) AS item(value) WHERE value = ANY(%s))"
    )
    pages = [rows.to_stored_page(row) for row in db.execute(sql, (encoded, encoded, encoded))]
    return list({page.page_id: page for page in pages}.values())


def iter_links(db: Connection, tables: GenerationTables, page_ids: Sequence[int] | None) -> Iterator[StoredLink]:
    sql = f"SELECT id, links FROM {tables.pages} WHERE links <> '[]'"
    if page_ids is None:
        packed_links = db.execute(f"{sql} ORDER BY id")
    else:
        packed_links = db.execute(f"{sql} AND id = ANY(%s) ORDER BY id", (list(page_ids),))
    for page_id, packed in packed_links:
        for link in rows.decode_links(rows.decode_text(packed)):
            yield rows.to_stored_link(page_id, link)


def find_links_by_key(db: Connection, tables: GenerationTables, keys: Sequence[str]) -> Iterator[StoredLink]:
    sql = f"SELECT id, links FROM {tables.pages} WHERE link_keys && %s::text[] ORDER BY id"
    wanted = frozenset(keys)
    for page_id, packed in db.execute(sql, ([rows.encode_key(key) for key in keys],)):
        for link in rows.decode_links(rows.decode_text(packed)):
            if not wanted.isdisjoint((link.key, link.other_key)):
                yield rows.to_stored_link(page_id, link)


def get_facets(db: Connection, tables: GenerationTables, where: PageFilter, properties: Sequence[str]) -> Facets:
    clause, values = build_where_clause(where)
    sql = f"SELECT path, category, tags, properties FROM {tables.pages} WHERE {clause or 'true'}"
    return count_facets(map(rows.decode_row, db.execute(sql, values)), properties, where.path_prefix)


# ── nearest chunks ───────────────────────────────────────────────────────────────────────────────

# Vectors have length one, so 1 plus the negative inner product is the cosine distance.

_MAX_HNSW_LIMIT = 1_000
"""The largest limit for an HNSW search. Above it an exact search is as fast."""
_HNSW_EF_SEARCH = 800
_HNSW_SETTINGS = (
    "SET LOCAL hnsw.ef_search = {}; SET LOCAL hnsw.iterative_scan = strict_order;"
    " SET LOCAL hnsw.max_scan_tuples = 200000"
)
_VECTOR_PARAMETER = "(SELECT %(vector)s::float4[]::vector)"
"""A subquery, so that the value is converted once and not for every row."""


def search_exact(
    db: Connection, tables: GenerationTables, vector: FloatArray, limit: int, page_ids: IntArray | None
) -> VectorHits:
    """Find the nearest chunks among all chunks or those of the given pages. Ties go to the older chunk."""
    within = "" if page_ids is None else " WHERE page_id = ANY(%(pages)s)"
    # Ordering by the computed distance, not by the bare operator, keeps the planner from using the HNSW index.
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> {_VECTOR_PARAMETER}))::float4 AS distance FROM {tables.chunks}{within}"
        " ORDER BY distance, id LIMIT %(limit)s"
    )
    values = {"vector": _Float32Array(vector), "limit": limit, "pages": None if page_ids is None else page_ids.tolist()}
    return _to_vector_hits(_register_dumper(db).execute(sql, values, binary=True).fetchall())


def search_hnsw(db: Connection, tables: GenerationTables, vector: FloatArray, limit: int) -> VectorHits | None:
    """Find the nearest chunks by the HNSW index, inside a transaction. Returns None if it finds too few."""
    if limit > _MAX_HNSW_LIMIT:
        return None
    db.execute(_HNSW_SETTINGS.format(min(max(_HNSW_EF_SEARCH, 2 * limit), 1000)))
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> {_VECTOR_PARAMETER}))::float4 FROM {tables.chunks}"
        f" ORDER BY vector <#> {_VECTOR_PARAMETER} LIMIT %(limit)s"
    )
    hits = _register_dumper(db).execute(sql, {"vector": _Float32Array(vector), "limit": limit}, binary=True).fetchall()
    return _to_vector_hits(hits) if len(hits) == limit else None


def _to_vector_hits(hits: list[tuple[int, int, float]]) -> VectorHits:
    chunk_ids = np.fromiter((chunk_id for chunk_id, _, _ in hits), np.int64, len(hits))
    page_ids = np.fromiter((page_id for _, page_id, _ in hits), np.int64, len(hits))
    # A stored vector is rounded and may be a little longer than 1.
    distances = np.fromiter((max(distance, 0.0) for _, _, distance in hits), np.float32, len(hits))
    order = np.lexsort((chunk_ids, distances))
    return VectorHits(chunk_ids[order], page_ids[order], distances[order])


@dataclass(frozen=True, slots=True)
class _Float32Array:
    """A vector as a statement parameter."""

    numbers: FloatArray


class _Float32ArrayDumper(Dumper):
    """Sends a vector as a binary float4 array. Formatting it as text takes longer than the search."""

    format = Format.BINARY
    oid = 1021
    _LAYOUT = np.dtype([("size", ">i4"), ("number", ">f4")])

    def dump(self, obj: _Float32Array) -> bytes:
        elements = np.empty(len(obj.numbers), self._LAYOUT)
        elements["size"], elements["number"] = 4, obj.numbers
        return struct.pack(">iiiii", 1, 0, 700, len(elements), 1) + elements.tobytes()


def _register_dumper(db: Connection) -> Connection:
    """Register the vector dumper on the connection and return it. Takes a microsecond."""
    db.adapters.register_dumper(_Float32Array, _Float32ArrayDumper)
    return db
