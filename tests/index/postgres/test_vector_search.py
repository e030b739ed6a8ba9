"""Nearest chunks by pgvector: exact, by HNSW above a size, and without recall loss under a filter."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import psycopg
import pytest
from psycopg import sql

from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import open_store
from tests.support.tiers import choose
from tests.support.wait import TIMEOUT_S, wait_until
from wikiholt.domain.index import FloatArray, IndexChange, IntArray, PageEntry, Recipe, round_vectors
from wikiholt.domain.page import Chunk, Page, PageMetadata, PageTerms
from wikiholt.index.postgres import locks, queries
from wikiholt.index.postgres.index import PostgresIndex
from wikiholt.index.postgres.maintenance import IndexBuilder, build_missing_indexes
from wikiholt.index.postgres.placements import Placement
from wikiholt.index.postgres.store import PostgresStore

WIKI = "vectorsvectors"
PAGES, CHUNKS_PER_PAGE, DIMENSIONS = choose(1_200, 600), 10, 64
HNSW_MIN_CHUNKS = 5_000


def make_clustered_vectors() -> FloatArray:
    """Vectors like those of texts: clustered, similar within a page, some duplicates."""
    draw = np.random.default_rng(7)
    centres = draw.standard_normal((40, DIMENSIONS))
    pages = centres[draw.integers(0, 40, PAGES)] + 0.7 * draw.standard_normal((PAGES, DIMENSIONS))
    found = np.repeat(pages, CHUNKS_PER_PAGE, axis=0) + 0.5 * draw.standard_normal(
        (PAGES * CHUNKS_PER_PAGE, DIMENSIONS)
    )
    found[5::1000] = found[4]
    return round_vectors(np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32))


VECTORS = make_clustered_vectors()


def make_page_entry(number: int) -> PageEntry:
    page = Page(f"{number}.md", f"{number}", "", PageMetadata(tags=(f"t{number % 60}",)), (), (), "", 1)
    chunks = tuple(Chunk(at, "text", (), "", 1, 1, 0, 4) for at in range(CHUNKS_PER_PAGE))
    hashes = tuple(f"{number}-{at}".encode() for at in range(CHUNKS_PER_PAGE))
    return PageEntry(
        "0" * 40,
        page,
        chunks,
        hashes,
        VECTORS[number * CHUNKS_PER_PAGE : (number + 1) * CHUNKS_PER_PAGE],
        PageTerms("", "", ""),
    )


@pytest.fixture(scope="module")
def store(pg: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with open_store(pg, tmp_path_factory.mktemp("scratch")) as made:
        index = made.create(WIKI, Recipe("none", DIMENSIONS, "vectors"))
        index.apply(IndexChange(tuple(map(make_page_entry, range(PAGES)))))
        placement = made.placements.get(WIKI)
        assert "g1_chunks_near" in build_missing_indexes(
            made.placements.get_operator_connections(placement), placement.schema, HNSW_MIN_CHUNKS
        )
        yield made


@pytest.fixture
def index(store: PostgresStore) -> Iterator[PostgresIndex]:
    with closing(PostgresIndex(store.get_connections(WIKI), 1, hnsw_min_chunks=HNSW_MIN_CHUNKS)) as opened:
        yield opened


def search_brute_force(query: FloatArray, limit: int, pages: IntArray | None = None) -> list[int]:
    """Chunk ids. They are assigned in page order, starting at 1."""
    distances = 1 - VECTORS @ query
    ids = np.arange(1, len(VECTORS) + 1)
    if pages is not None:
        keep = np.isin((ids - 1) // CHUNKS_PER_PAGE + 1, pages)
        ids, distances = ids[keep], distances[keep]
    return [int(chunk) for chunk in ids[np.lexsort((ids, np.round(distances, 6)))][:limit]]


def make_queries() -> FloatArray:
    draw = np.random.default_rng(8)
    found = VECTORS[draw.integers(0, len(VECTORS), 30)] + 0.1 * draw.standard_normal((30, DIMENSIONS))
    return round_vectors(np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32))


def test_hnsw_finds_the_nearest(index: PostgresIndex) -> None:
    for limit in (10, 100, 600):
        shares = []
        for query in make_queries():
            near = index.search_vectors(query, limit, None)
            assert len(set(near.chunk_ids.tolist())) == limit
            assert np.all(np.diff(near.distances) >= 0)
            # Compare distances: any of several equally near chunks is right.
            farthest = np.sort(1 - VECTORS @ query)[limit - 1]
            shares.append(np.mean(near.distances <= farthest + 1e-6))
        assert np.mean(shares) >= 0.97, (limit, shares)


def test_a_query_beyond_the_index_limit_is_exact(index: PostgresIndex) -> None:
    query = make_queries()[0]
    assert len(index.search_vectors(query, 1_000_000, None).chunk_ids) == PAGES * CHUNKS_PER_PAGE
    assert set(index.search_vectors(query, 5_000, None).chunk_ids.tolist()) == set(search_brute_force(query, 5_000))


def test_a_filter_costs_no_recall(index: PostgresIndex) -> None:
    for number, query in enumerate(make_queries()):
        pages = np.arange(1 + number, PAGES + 1, 60, dtype=np.int64)
        near = index.search_vectors(query, 10, pages)
        assert near.chunk_ids.tolist() == search_brute_force(query, 10, pages)
    one = index.search_vectors(make_queries()[0], 1_000_000, np.array([7], np.int64))
    assert sorted(one.chunk_ids.tolist()) == list(range(61, 71))
    assert len(index.search_vectors(make_queries()[0], 5, np.array([], np.int64)).chunk_ids) == 0


def test_exact_queries_use_no_index(store: PostgresStore, index: PostgresIndex) -> None:
    with store.get_connections(WIKI).read_snapshot() as db:
        db.execute("SET LOCAL enable_seqscan TO off")
        plans = []
        execute = db.execute

        def explained(order: str, values: object = None, *, binary: bool = False) -> object:
            if order.startswith("SELECT"):
                plans.append("\n".join(row[0] for row in execute(f"EXPLAIN {order}", values)))
            return execute(order, values, binary=binary)

        db.execute = explained
        try:
            near = queries.search_exact(db, index._tables, make_queries()[0], 10, None)
            queries.search_exact(db, index._tables, make_queries()[0], 10, np.array([1, 2], np.int64))
            queries.search_hnsw(db, index._tables, make_queries()[0], 10)
        finally:
            del db.execute
    assert near.chunk_ids.tolist() == search_brute_force(make_queries()[0], 10)
    assert ["g1_chunks_near" in plan for plan in plans] == [False, False, True]


def test_chunks_that_are_equally_near_come_in_the_order_of_their_ids(index: PostgresIndex) -> None:
    same = [int(at) + 1 for at in range(5, len(VECTORS), 1000)]
    pages = np.unique((np.array([5, *same]) - 1) // CHUNKS_PER_PAGE + 1)
    near = index.search_vectors(VECTORS[4], len(same) + 1, pages)
    assert near.chunk_ids.tolist() == sorted([5, *same])


def test_an_incomplete_index_is_built_again(store: PostgresStore) -> None:
    placement: Placement = store.placements.get(WIKI)
    connections = store.placements.get_operator_connections(placement)
    with connections.read_connection() as db:
        order = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass"
        db.execute(order, (f"{placement.schema}.g1_pages_last_key",))
    assert build_missing_indexes(connections, placement.schema, HNSW_MIN_CHUNKS) == ["g1_pages_last_key"]
    assert build_missing_indexes(connections, placement.schema, HNSW_MIN_CHUNKS) == []


def test_only_one_process_builds_indexes(store: PostgresStore, pg: PostgresServer) -> None:
    placement = store.placements.get(WIKI)
    connections = store.placements.get_operator_connections(placement)
    with connections.read_connection() as db:
        db.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(placement.schema, "g1_pages_last_key")))
        dsn = pg.get_dsn(db.info.dbname)
    with psycopg.connect(dsn, autocommit=True) as other:
        assert locks.claim_build(other, f"indexes {placement.schema}")
        assert build_missing_indexes(connections, placement.schema, HNSW_MIN_CHUNKS) == []
        pid = other.info.backend_pid
    # That session ended without releasing its claim, so the claim is invalid.
    with connections.read_connection() as db:
        wait_until(lambda: db.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None)
    assert build_missing_indexes(connections, placement.schema, HNSW_MIN_CHUNKS) == ["g1_pages_last_key"]


def test_vectors_come_back_bit_for_bit(index: PostgresIndex) -> None:
    with index.open_vector_snapshot() as snapshot:
        blocks = list(snapshot.iter_blocks())
    assert np.array_equal(np.concatenate([block.vectors for block in blocks]), VECTORS)
    assert np.array_equal(
        np.concatenate([block.chunk_ids for block in blocks]), np.arange(1, PAGES * CHUNKS_PER_PAGE + 1)
    )


def test_indexes_are_built_in_the_background_and_a_failure_blocks_no_other_wiki(store: PostgresStore) -> None:
    placement = store.placements.get(WIKI)
    connections = store.placements.get_operator_connections(placement)
    with connections.read_connection() as db:
        db.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(placement.schema, "g1_pages_last_key")))
    builder = IndexBuilder(first_wait_s=0)
    builder.request(connections, "no_such_schema", HNSW_MIN_CHUNKS)
    builder.request(connections, placement.schema, HNSW_MIN_CHUNKS)
    assert builder.wait_idle(TIMEOUT_S)
    assert build_missing_indexes(connections, placement.schema, HNSW_MIN_CHUNKS) == []
