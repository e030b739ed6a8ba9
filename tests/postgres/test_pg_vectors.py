"""Nearest chunks by pgvector: exact, by HNSW above a size, and without loss behind a filter."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import psycopg
import pytest
from pg_server import PgServer
from pg_shared import store_on
from pg_waiting import until
from psycopg import sql

from wikiholt.model import Change, Chunk, Floats, Ints, Metadata, Page, PageEntry, Recipe, Words
from wikiholt.stores.postgres import locks, nearest
from wikiholt.stores.postgres.index import PostgresIndex
from wikiholt.stores.postgres.placing import Placement
from wikiholt.stores.postgres.store import PostgresStore
from wikiholt.stores.postgres.tending import Tender, tend

WIKI = "vectorsvectors"
PAGES, EACH, DIMENSIONS = 1_200, 10, 64
FROM = 5_000


def clustered() -> Floats:
    """Vectors as texts have them: in groups, and page by page alike; some twice."""
    draw = np.random.default_rng(7)
    centres = draw.standard_normal((40, DIMENSIONS))
    pages = centres[draw.integers(0, 40, PAGES)] + 0.7 * draw.standard_normal((PAGES, DIMENSIONS))
    found = np.repeat(pages, EACH, axis=0) + 0.5 * draw.standard_normal((PAGES * EACH, DIMENSIONS))
    found[5::1000] = found[4]
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


VECTORS = clustered()


def entry(number: int) -> PageEntry:
    page = Page(f"{number}.md", f"{number}", "", Metadata(tags=(f"t{number % 60}",)), (), (), "", 1)
    chunks = tuple(Chunk(at, "text", (), "", 1, 1, 0, 4) for at in range(EACH))
    hashes = tuple(f"{number}-{at}".encode() for at in range(EACH))
    return PageEntry("0" * 40, page, chunks, hashes, VECTORS[number * EACH : (number + 1) * EACH], Words("", "", ""))


@pytest.fixture(scope="module")
def store(pg: PgServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresStore]:
    with store_on(pg, tmp_path_factory.mktemp("scratch")) as made:
        index = made.create(WIKI, Recipe("none", DIMENSIONS, "vectors"))
        index.apply(Change(tuple(map(entry, range(PAGES)))))
        placement = made.placements.get(WIKI)
        assert "g1_chunks_near" in tend(made.placements.operator(placement), placement.schema, FROM)
        yield made


@pytest.fixture
def index(store: PostgresStore) -> Iterator[PostgresIndex]:
    with closing(PostgresIndex(store.door(WIKI), 1, hnsw_from=FROM)) as opened:
        yield opened


def truth(query: Floats, limit: int, pages: Ints | None = None) -> list[int]:
    """Ids of chunks: they were given out in the order of the pages, from 1 on."""
    distances = 1 - VECTORS @ query
    ids = np.arange(1, len(VECTORS) + 1)
    if pages is not None:
        keep = np.isin((ids - 1) // EACH + 1, pages)
        ids, distances = ids[keep], distances[keep]
    return [int(chunk) for chunk in ids[np.lexsort((ids, np.round(distances, 6)))][:limit]]


def queries() -> Floats:
    draw = np.random.default_rng(8)
    found = VECTORS[draw.integers(0, len(VECTORS), 30)] + 0.1 * draw.standard_normal((30, DIMENSIONS))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), np.float32)


def test_hnsw_finds_the_nearest(index: PostgresIndex) -> None:
    for limit in (10, 100, 600):
        shares = []
        for query in queries():
            near = index.nearest(query, limit, None)
            assert len(set(near.chunk_ids.tolist())) == limit
            assert np.all(np.diff(near.distances) >= 0)
            # By their distances: of those that are equally near, any will do.
            farthest = np.sort(1 - VECTORS @ query)[limit - 1]
            shares.append(np.mean(near.distances <= farthest + 1e-6))
        assert np.mean(shares) >= 0.97, (limit, shares)


def test_what_is_asked_beyond_an_index_is_exact(index: PostgresIndex) -> None:
    query = queries()[0]
    assert len(index.nearest(query, 1_000_000, None).chunk_ids) == PAGES * EACH
    assert set(index.nearest(query, 5_000, None).chunk_ids.tolist()) == set(truth(query, 5_000))


def test_a_filter_costs_no_recall(index: PostgresIndex) -> None:
    for number, query in enumerate(queries()):
        pages = np.arange(1 + number, PAGES + 1, 60, dtype=np.int64)
        near = index.nearest(query, 10, pages)
        assert near.chunk_ids.tolist() == truth(query, 10, pages)
    one = index.nearest(queries()[0], 1_000_000, np.array([7], np.int64))
    assert sorted(one.chunk_ids.tolist()) == list(range(61, 71))
    assert len(index.nearest(queries()[0], 5, np.array([], np.int64)).chunk_ids) == 0


def test_where_exactness_is_promised_no_index_is_used(store: PostgresStore, index: PostgresIndex) -> None:
    with store.door(WIKI).snapshot() as db:
        db.execute("SET LOCAL enable_seqscan TO off")
        plans = []
        execute = db.execute

        def explained(order: str, values: object = None, *, binary: bool = False) -> object:
            if order.startswith("SELECT"):
                plans.append("\n".join(row[0] for row in execute(f"EXPLAIN {order}", values)))
            return execute(order, values, binary=binary)

        db.execute = explained
        try:
            near = nearest.exact(db, index._tables, queries()[0], 10, None)
            nearest.exact(db, index._tables, queries()[0], 10, np.array([1, 2], np.int64))
            nearest.by_index(db, index._tables, queries()[0], 10)
        finally:
            del db.execute
    assert near.chunk_ids.tolist() == truth(queries()[0], 10)
    assert ["g1_chunks_near" in plan for plan in plans] == [False, False, True]


def test_chunks_that_are_equally_near_come_in_the_order_of_their_ids(index: PostgresIndex) -> None:
    same = [int(at) + 1 for at in range(5, len(VECTORS), 1000)]
    near = index.nearest(VECTORS[4], 13, np.unique((np.array([5, *same]) - 1) // EACH + 1))
    assert near.chunk_ids.tolist() == sorted([5, *same])


def test_an_index_that_was_left_half_made_is_made_again(store: PostgresStore) -> None:
    placement: Placement = store.placements.get(WIKI)
    door = store.placements.operator(placement)
    with door.reading() as db:
        order = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = %s::regclass"
        db.execute(order, (f"{placement.schema}.g1_pages_version",))
    assert tend(door, placement.schema, FROM) == ["g1_pages_version"]
    assert tend(door, placement.schema, FROM) == []


def test_tending_is_left_to_the_one_who_is_at_it(store: PostgresStore, pg: PgServer) -> None:
    placement = store.placements.get(WIKI)
    door = store.placements.operator(placement)
    with door.reading() as db:
        db.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(placement.schema, "g1_pages_version")))
        dsn = pg.dsn(db.info.dbname)
    with psycopg.connect(dsn, autocommit=True) as other:
        assert locks.claim(other, f"indexes {placement.schema}")
        assert tend(door, placement.schema, FROM) == []
        pid = other.info.backend_pid
    # That session ended without giving anything back: its claim counts for nothing.
    with door.reading() as db:
        until(lambda: db.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (pid,)).fetchone() is None)
    assert tend(door, placement.schema, FROM) == ["g1_pages_version"]


def test_vectors_come_back_bit_for_bit(index: PostgresIndex) -> None:
    with index.snapshot() as snapshot:
        blocks = list(snapshot.blocks())
    assert np.array_equal(np.concatenate([block.vectors for block in blocks]), VECTORS)
    assert np.array_equal(np.concatenate([block.chunk_ids for block in blocks]), np.arange(1, PAGES * EACH + 1))


def test_wikis_are_tended_in_the_background_and_one_that_fails_keeps_no_other_waiting(store: PostgresStore) -> None:
    placement = store.placements.get(WIKI)
    door = store.placements.operator(placement)
    with door.reading() as db:
        db.execute(sql.SQL("DROP INDEX {}").format(sql.Identifier(placement.schema, "g1_pages_version")))
    tender = Tender(patience=0)
    tender.ask(door, "no_such_schema", FROM)
    tender.ask(door, placement.schema, FROM)
    assert tender.settle(60)
    assert tend(door, placement.schema, FROM) == []
