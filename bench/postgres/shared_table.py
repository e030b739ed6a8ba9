"""The usual alternative: one table for all wikis, every query with `WHERE tenant_id = …`."""

from typing import Any

import psycopg

from bench.embedders import CachingEmbedder
from bench.measures import measure_seconds
from bench.postgres.rows import encode_copy, encode_int4, encode_vector, format_vector
from wikiholt.domain.index import IndexChange


class SharedTable:
    """Chunks of all wikis with an HNSW index, a GIN index, and one on tenant_id, so that small ones lose nothing."""

    def __init__(self, address: str, embedder: CachingEmbedder) -> None:
        self._database: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(address, autocommit=True)
        self._embedder = embedder
        self._next = 0
        self.build_s = 0.0
        self._database.execute(
            "CREATE TABLE chunks (id int4, tenant_id int4, text text, vector vector(384) STORAGE PLAIN)"
        )

    def fill(self, number: int, change: IndexChange) -> None:
        with self._database.cursor() as cursor, cursor.copy("COPY chunks FROM STDIN (FORMAT binary)") as copy:
            rows = [(c.text, v) for e in change.pages for c, v in zip(e.chunks, e.vectors, strict=True)]
            encoded = (
                (encode_int4(self._next + n), encode_int4(number), text.replace("\0", "").encode(), encode_vector(v))
                for n, (text, v) in enumerate(rows)
            )
            for piece in encode_copy(encoded):
                copy.write(piece)
        self._next += len(rows)

    def finish(self) -> None:
        """Create the indexes, which is faster after all rows are written."""
        create = "CREATE INDEX ON chunks USING hnsw (vector vector_ip_ops)"
        self.build_s = measure_seconds(self._database.execute, create)
        self._database.execute(
            "ALTER TABLE chunks ADD words tsvector GENERATED ALWAYS AS (to_tsvector('english', text)) STORED"
        )
        self._database.execute("CREATE INDEX ON chunks (tenant_id)")
        self._database.execute("CREATE INDEX ON chunks USING gin (words)")
        self._database.execute("VACUUM ANALYZE chunks")

    def search_vectors(self, number: int, question: str) -> list[tuple[Any, ...]]:
        find = "SELECT id, text FROM chunks WHERE tenant_id = %s ORDER BY vector <#> %s::vector LIMIT 30"
        return self._database.execute(find, (number, format_vector(self._embedder.embed_query(question)))).fetchall()

    def search_words(self, number: int, question: str) -> list[tuple[Any, ...]]:
        find = (
            "SELECT id, text FROM chunks, websearch_to_tsquery('english', %s) AS asked"
            " WHERE tenant_id = %s AND words @@ asked ORDER BY ts_rank(words, asked) DESC LIMIT 30"
        )
        return self._database.execute(find, (question, number)).fetchall()

    def get_disk_bytes(self) -> int:
        row = self._database.execute("SELECT pg_total_relation_size('chunks')").fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._database.close()
