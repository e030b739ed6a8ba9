"""The nearest chunks, found by pgvector: exactly, or above a size by its HNSW index.

Vectors have length one, so 1 plus the negative inner product is the cosine distance.
"""

import numpy as np

from wikiholt.model import Floats, Ints, Neighbours
from wikiholt.stores.postgres import rows
from wikiholt.stores.postgres.pool import Connection
from wikiholt.stores.postgres.tables import Tables

_MOST_BY_INDEX = 1_000
"""Of how many neighbours an HNSW index is asked; beyond, reading everything is as fast, and exact."""
_LOOK_AROUND = 200
_SETTINGS = (
    "SET LOCAL hnsw.ef_search = {}; SET LOCAL hnsw.iterative_scan = strict_order;"
    " SET LOCAL hnsw.max_scan_tuples = 200000"
)


def exact(db: Connection, tables: Tables, vector: Floats, limit: int, pages: Ints | None) -> Neighbours:
    """Of every chunk, or of these pages'; ties go to the older chunk."""
    within = "" if pages is None else " WHERE page_id = ANY(%(pages)s)"
    # An index answers to an order by the bare operator: by the distance itself, and then the id, it never can.
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> %(vector)s::vector))::float4 AS distance FROM {tables.chunks}{within}"
        " ORDER BY distance, id LIMIT %(limit)s"
    )
    values = {"vector": rows.vector_text(vector), "limit": limit, "pages": None if pages is None else pages.tolist()}
    return _neighbours(db.execute(sql, values, binary=True).fetchall())


def by_index(db: Connection, tables: Tables, vector: Floats, limit: int) -> Neighbours | None:
    """Of every chunk, by the HNSW index if there is one, inside a transaction; None where that gave too few."""
    if limit > _MOST_BY_INDEX:
        return None
    db.execute(_SETTINGS.format(min(max(_LOOK_AROUND, 2 * limit), 1000)))
    sql = (
        f"SELECT id, page_id, (1 + (vector <#> %(vector)s::vector))::float4 FROM {tables.chunks}"
        " ORDER BY vector <#> %(vector)s::vector LIMIT %(limit)s"
    )
    found = db.execute(sql, {"vector": rows.vector_text(vector), "limit": limit}, binary=True).fetchall()
    return _neighbours(found) if len(found) == limit else None


def _neighbours(found: list[tuple[int, int, float]]) -> Neighbours:
    chunk_ids = np.fromiter((row[0] for row in found), np.int64, len(found))
    page_ids = np.fromiter((row[1] for row in found), np.int64, len(found))
    distances = np.fromiter((row[2] for row in found), np.float32, len(found))
    order = np.lexsort((chunk_ids, distances))
    return Neighbours(chunk_ids[order], page_ids[order], distances[order])
