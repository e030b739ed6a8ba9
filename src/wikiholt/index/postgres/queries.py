"""The condition of a filter, and the nearest chunks of a generation."""

import struct
from dataclasses import dataclass

import numpy as np
from psycopg.adapt import Dumper
from psycopg.pq import Format

from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.domain.search import PageFilter
from wikiholt.index import page_table
from wikiholt.index.page_table import HAS_PROPERTIES, SqlDialect
from wikiholt.index.postgres.pool import Connection
from wikiholt.index.postgres.rows import encode_key, encode_text
from wikiholt.index.postgres.schema import GenerationTables

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


# ── nearest chunks ───────────────────────────────────────────────────────────────────────────────

# Vectors have length one, so 1 plus the negative inner product is the cosine distance.

_VECTOR_PARAMETER = "(SELECT %(vector)s::float4[]::vector)"
"""A subquery, so that the value is converted once and not for every row."""


def search_exact(
    db: Connection, tables: GenerationTables, vector: FloatArray, limit: int, page_ids: IntArray | None
) -> VectorHits:
    """Find the nearest chunks among all chunks or those of the given pages. Ties go to the older chunk."""
    within = "" if page_ids is None else " WHERE page_id = ANY(%(pages)s)"
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> {_VECTOR_PARAMETER}))::float4 AS distance FROM {tables.chunks}{within}"
        " ORDER BY distance, id LIMIT %(limit)s"
    )
    values = {"vector": _Float32Array(vector), "limit": limit, "pages": None if page_ids is None else page_ids.tolist()}
    return _to_vector_hits(_register_dumper(db).execute(sql, values, binary=True).fetchall())


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
