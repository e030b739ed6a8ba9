"""The nearest chunks, found by pgvector: exactly, or above a size by its HNSW index.

Vectors have length one, so 1 plus the negative inner product is the cosine distance.
"""

import struct
from dataclasses import dataclass

import numpy as np
from psycopg.adapt import Dumper
from psycopg.pq import Format

from wikiholt.model import Floats, Ints, Neighbours
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.tables import Tables

_MOST_BY_INDEX = 1_000
"""Of how many neighbours an HNSW index is asked; beyond, reading everything is as fast, and exact."""
_LOOK_AROUND = 800
_SETTINGS = (
    "SET LOCAL hnsw.ef_search = {}; SET LOCAL hnsw.iterative_scan = strict_order;"
    " SET LOCAL hnsw.max_scan_tuples = 200000"
)
_GIVEN = "(SELECT %(vector)s::float4[]::vector)"
"""Selected, so that it is made a vector once, and not once a row."""


def exact(db: Connection, tables: Tables, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
    """Of every chunk, or of these pages'; ties go to the older chunk."""
    within = "" if pages is None else " WHERE page_id = ANY(%(pages)s)"
    # An index answers to an order by the bare operator: by the distance itself, and then the id, it never can.
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> {_GIVEN}))::float4 AS distance FROM {tables.chunks}{within}"
        " ORDER BY distance, id LIMIT %(limit)s"
    )
    values = {"vector": _Singles(vector), "limit": limit, "pages": None if pages is None else pages.tolist()}
    return _neighbours(_taught(db).execute(sql, values, binary=True).fetchall())


def by_index(db: Connection, tables: Tables, vector: Floats, limit: int) -> Neighbours | None:
    """Of every chunk, by the HNSW index if there is one, inside a transaction; None where that gave too few."""
    if limit > _MOST_BY_INDEX:
        return None
    db.execute(_SETTINGS.format(min(max(_LOOK_AROUND, 2 * limit), 1000)))
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> {_GIVEN}))::float4 FROM {tables.chunks}"
        f" ORDER BY vector <#> {_GIVEN} LIMIT %(limit)s"
    )
    found = _taught(db).execute(sql, {"vector": _Singles(vector), "limit": limit}, binary=True).fetchall()
    return _neighbours(found) if len(found) == limit else None


def _neighbours(found: list[tuple[int, int, float]]) -> Neighbours:
    chunk_ids = np.fromiter((row[0] for row in found), np.int64, len(found))
    page_ids = np.fromiter((row[1] for row in found), np.int64, len(found))
    distances = np.fromiter((row[2] for row in found), np.float32, len(found))
    order = np.lexsort((chunk_ids, distances))
    return Neighbours(chunk_ids[order], page_ids[order], distances[order])


@dataclass(frozen=True, slots=True)
class _Singles:
    """A vector on its way to PostgreSQL."""

    numbers: Floats


class _SinglesDumper(Dumper):
    """An array of float4 in binary form: as text, a vector takes longer to write than its neighbours to find."""

    format = Format.BINARY
    oid = 1021
    _KIND = np.dtype([("size", ">i4"), ("number", ">f4")])

    def dump(self, obj: _Singles) -> bytes:
        found = np.empty(len(obj.numbers), self._KIND)
        found["size"], found["number"] = 4, obj.numbers
        return struct.pack(">iiiii", 1, 0, 700, len(found), 1) + found.tobytes()


def _taught(db: Connection) -> Connection:
    """The connection, knowing how a vector is sent; that takes a microsecond."""
    db.adapters.register_dumper(_Singles, _SinglesDumper)
    return db
