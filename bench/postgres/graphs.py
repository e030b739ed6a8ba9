"""The recall of HNSW indexes on real text, by their build and search parameters."""

import time
from collections.abc import Sequence

import numpy as np
import psycopg
from psycopg import sql

from bench import collections
from bench.measures import get_percentiles_ms, measure_seconds
from bench.postgres.parts import SAVED_RESULTS, ReportPart
from bench.postgres.rows import PassageRows, format_vector
from bench.postgres.server import run_server
from bench.postgres.shared import Database, copy_rows
from bench.report import make_head
from wikiholt.api.bootstrap import open_service
from wikiholt.domain.index import FloatArray
from wikiholt.models import load_embedder

WIKI = "wiki-k8s-en"
BUILD_PARAMETERS = ((16, 64), (16, 200), (24, 200))
"""m and ef_construction; the first pair is pgvector's default."""
SEARCH_WIDTHS = (100, 200, 400, 800)
QUESTIONS = 180


def run() -> None:
    """Build each index, search the questions of the collection, and save the result."""
    part = ReportPart("graphs", "HNSW on real text")
    vectors = _vectors()
    texts = [text for kind in collections.read_queries(collections.DEFAULT / WIKI) for text in kind.texts.values()]
    texts = [texts[int(at)] for at in np.random.default_rng(2).choice(len(texts), QUESTIONS, replace=False)]
    part.add(
        f"{len(vectors):,} passages and {QUESTIONS} questions of {WIKI}; the best ten of 30 against all products. A question is "
        "incomplete if one of its ten is missing.",
        "",
        make_head(
            "| m, ef_construction | build s | ef_search | recall@10 | worst | incomplete | p50 ms | ÷ reading all |"
        ),
    )
    with (
        run_server() as server,
        load_embedder() as embedder,
        psycopg.connect(server.create_database(), autocommit=True) as database,
    ):
        queries = np.stack([embedder.embed_query(text) for text in texts])
        for m, width in BUILD_PARAMETERS:
            built = _build(database, vectors, m, width)
            for search_width in SEARCH_WIDTHS:
                database.execute(f"SET hnsw.ef_search = {search_width}; SET hnsw.iterative_scan = strict_order")
                part.add(f"| {m}, {width} | {built:.0f} | {search_width} | {_search(database, vectors, queries)} |")
    part.save()


def _vectors() -> FloatArray:
    """The vectors of the index that the part `agreement` creates."""
    service = open_service(SAVED_RESULTS / "files")
    index = service.components.store.open(service.get_handle(WIKI).wiki.id)
    try:
        with index.open_vector_snapshot() as snapshot:
            return np.concatenate([block.vectors for block in snapshot.iter_blocks()])
    finally:
        index.close()
        service.close()


def _build(database: Database, vectors: FloatArray, m: int, width: int) -> float:
    database.execute("DROP TABLE IF EXISTS chunks")
    database.execute("CREATE TABLE chunks (id int, vector vector(384) STORAGE PLAIN)")
    rows = PassageRows(vectors, np.zeros(len(vectors), np.int64), {})
    copy_rows(database, sql.Identifier("chunks"), ((number,) for number in range(len(vectors))), rows)
    how = f"USING hnsw (vector vector_ip_ops) WITH (m = {m}, ef_construction = {width})"
    took = measure_seconds(database.execute, f"CREATE INDEX ON chunks {how}")
    database.execute("VACUUM ANALYZE chunks")
    return took


def _search(database: Database, vectors: FloatArray, queries: FloatArray) -> str:
    find = "SELECT vector <#> %(v)s::vector FROM chunks ORDER BY {} LIMIT 30"
    times: tuple[list[float], list[float]] = ([], [])
    recalls = []
    for query in queries:
        # Passages at the same distance count as equally right.
        worst = np.sort(-(vectors @ query))[9] + 1e-5
        for taken, order in zip(times, ("vector <#> %(v)s::vector", "1 + (vector <#> %(v)s::vector)"), strict=True):
            began = time.perf_counter()
            found = database.execute(find.format(order), {"v": format_vector(query)}).fetchall()
            taken.append(time.perf_counter() - began)
            if taken is times[0]:
                recalls.append(float(np.mean(np.array(found[:10]) <= worst)))
    return _format_row(times, recalls)


def _format_row(times: Sequence[Sequence[float]], recalls: Sequence[float]) -> str:
    (p50, _), (whole, _) = (get_percentiles_ms(each) for each in times)
    short = sum(recall < 1 for recall in recalls)
    return f"{np.mean(recalls):.4f} | {min(recalls):.1f} | {short} | {p50:.1f} | {p50 / whole:.2f}"
