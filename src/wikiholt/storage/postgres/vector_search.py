"""The nearest chunks, found by pgvector: exactly, or above a size by its HNSW index.

Vectors have length one, so 1 plus the negative inner product is the cosine distance.
"""

import struct
from dataclasses import dataclass

import numpy as np
from psycopg.adapt import Dumper
from psycopg.pq import Format

from wikiholt.domain.index import FloatArray, IntArray, VectorHits
from wikiholt.storage.postgres.pool import Connection
from wikiholt.storage.postgres.schema import GenerationTables

_MAX_HNSW_LIMIT = 1_000
"""Of how many neighbours an HNSW index is asked; beyond, reading everything is as fast, and exact."""
_HNSW_EF_SEARCH = 800
_HNSW_SETTINGS = (
    "SET LOCAL hnsw.ef_search = {}; SET LOCAL hnsw.iterative_scan = strict_order;"
    " SET LOCAL hnsw.max_scan_tuples = 200000"
)
_VECTOR_PARAMETER = "(SELECT %(vector)s::float4[]::vector)"
"""Selected, so that it is made a vector once, and not once a row."""


def search_exact(
    db: Connection, tables: GenerationTables, vector: FloatArray, limit: int, page_ids: IntArray | None
) -> VectorHits:
    """Of every chunk, or of these pages'; ties go to the older chunk."""
    within = "" if page_ids is None else " WHERE page_id = ANY(%(pages)s)"
    # An index answers to an order by the bare operator: by the distance itself, and then the id, it never can.
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> {_VECTOR_PARAMETER}))::float4 AS distance FROM {tables.chunks}{within}"
        " ORDER BY distance, id LIMIT %(limit)s"
    )
    values = {"vector": _Float32Array(vector), "limit": limit, "pages": None if page_ids is None else page_ids.tolist()}
    return _to_vector_hits(_register_dumper(db).execute(sql, values, binary=True).fetchall())


def search_hnsw(db: Connection, tables: GenerationTables, vector: FloatArray, limit: int) -> VectorHits | None:
    """Of every chunk, by the HNSW index if there is one, inside a transaction; None where that gave too few."""
    if limit > _MAX_HNSW_LIMIT:
        return None
    db.execute(_HNSW_SETTINGS.format(min(max(_HNSW_EF_SEARCH, 2 * limit), 1000)))
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> {_VECTOR_PARAMETER}))::float4 FROM {tables.chunks}"
        f" ORDER BY vector <#> {_VECTOR_PARAMETER} LIMIT %(limit)s"
    )
    found = _register_dumper(db).execute(sql, {"vector": _Float32Array(vector), "limit": limit}, binary=True).fetchall()
    return _to_vector_hits(found) if len(found) == limit else None


def _to_vector_hits(rows: list[tuple[int, int, float]]) -> VectorHits:
    chunk_ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
    page_ids = np.fromiter((row[1] for row in rows), np.int64, len(rows))
    distances = np.fromiter((row[2] for row in rows), np.float32, len(rows))
    order = np.lexsort((chunk_ids, distances))
    return VectorHits(chunk_ids[order], page_ids[order], distances[order])


@dataclass(frozen=True, slots=True)
class _Float32Array:
    """A vector on its way to PostgreSQL."""

    numbers: FloatArray


class _Float32ArrayDumper(Dumper):
    """An array of float4 in binary form: as text, a vector takes longer to write than its neighbours to find."""

    format = Format.BINARY
    oid = 1021
    _KIND = np.dtype([("size", ">i4"), ("number", ">f4")])

    def dump(self, obj: _Float32Array) -> bytes:
        found = np.empty(len(obj.numbers), self._KIND)
        found["size"], found["number"] = 4, obj.numbers
        return struct.pack(">iiiii", 1, 0, 700, len(found), 1) + found.tobytes()


def _register_dumper(db: Connection) -> Connection:
    """The connection, knowing how a vector is sent; that takes a microsecond."""
    db.adapters.register_dumper(_Float32Array, _Float32ArrayDumper)
    return db
