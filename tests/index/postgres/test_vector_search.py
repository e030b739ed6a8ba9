"""Nearest chunks by pgvector: exact, also under a filter."""

from collections.abc import Iterator
from contextlib import closing

import numpy as np
import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.postgres_stores import open_store
from tests.support.tiers import choose
from wikiholt.domain.index import FloatArray, IndexChange, IntArray, PageEntry, Recipe, round_vectors
from wikiholt.domain.page import Chunk, Page, PageMetadata, PageTerms
from wikiholt.index.postgres.index import PostgresIndex
from wikiholt.index.postgres.store import PostgresStore

WIKI = "vectorsvectors"
PAGES, CHUNKS_PER_PAGE, DIMENSIONS = choose(1_200, 600), 10, 64


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
        made.create_missing_indexes(placement)
        yield made


@pytest.fixture
def index(store: PostgresStore) -> Iterator[PostgresIndex]:
    with closing(PostgresIndex(store.get_connections(WIKI), 1)) as opened:
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


def test_the_nearest_are_exact(index: PostgresIndex) -> None:
    for query in make_queries():
        assert index.search_vectors(query, 10, None).chunk_ids.tolist() == search_brute_force(query, 10)


def test_a_filter_costs_no_recall(index: PostgresIndex) -> None:
    for number, query in enumerate(make_queries()):
        pages = np.arange(1 + number, PAGES + 1, 60, dtype=np.int64)
        near = index.search_vectors(query, 10, pages)
        assert near.chunk_ids.tolist() == search_brute_force(query, 10, pages)
    one = index.search_vectors(make_queries()[0], 1_000_000, np.array([7], np.int64))
    assert sorted(one.chunk_ids.tolist()) == list(range(61, 71))
    assert len(index.search_vectors(make_queries()[0], 5, np.array([], np.int64)).chunk_ids) == 0


def test_chunks_that_are_equally_near_come_in_the_order_of_their_ids(index: PostgresIndex) -> None:
    same = [int(at) + 1 for at in range(5, len(VECTORS), 1000)]
    pages = np.unique((np.array([5, *same]) - 1) // CHUNKS_PER_PAGE + 1)
    near = index.search_vectors(VECTORS[4], len(same) + 1, pages)
    assert near.chunk_ids.tolist() == sorted([5, *same])


def test_vectors_come_back_bit_for_bit(index: PostgresIndex) -> None:
    with index.open_vector_snapshot() as snapshot:
        blocks = list(snapshot.iter_blocks())
    assert np.array_equal(np.concatenate([block.vectors for block in blocks]), VECTORS)
    assert np.array_equal(
        np.concatenate([block.chunk_ids for block in blocks]), np.arange(1, PAGES * CHUNKS_PER_PAGE + 1)
    )
