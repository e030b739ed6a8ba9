"""The means of the passages of pages, and what a search makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.index.brute_force_index import random_vectors
from tests.search.candidate_fixtures import Row
from tests.search.candidate_fixtures import make_rows as candidates
from wikiholt.domain.index import CosineScale, VectorHits, VectorRows, compute_page_means
from wikiholt.domain.search import SearchMode
from wikiholt.search.ranking import QueryShape, compute_features, rank_candidates, select_first, with_page_evidence

QUERY = random_vectors(1, seed=9)[0]
SCALE = CosineScale()


def make_rows(counts: list[int]) -> VectorRows:
    page_ids = np.repeat(np.arange(1, len(counts) + 1), counts).astype(np.int64)
    return VectorRows(np.arange(len(page_ids), dtype=np.int64), page_ids, random_vectors(len(page_ids), seed=3))


def select_rows(rows: VectorRows, chosen: object) -> VectorRows:
    return VectorRows(rows.chunk_ids[chosen], rows.page_ids[chosen], rows.vectors[chosen])


def test_the_cosine_of_a_page_is_that_of_the_mean_of_its_passages() -> None:
    rows = make_rows([3, 1])
    mean = rows.vectors[:3].mean(axis=0)
    means = compute_page_means(rows, np.array([1, 2, 7]))
    expected = [float(mean @ QUERY / np.linalg.norm(mean)), float(rows.vectors[3] @ QUERY), 0.0]
    assert (means @ QUERY).tolist() == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.data())
def test_the_order_of_the_rows_does_not_matter(counts: list[int], data: st.DataObject) -> None:
    rows, pages = make_rows(counts), np.arange(1, len(counts) + 1)
    order = data.draw(st.permutations(range(len(rows.page_ids))))
    np.testing.assert_array_equal(compute_page_means(select_rows(rows, order), pages), compute_page_means(rows, pages))


def test_passages_that_cancel_out_have_no_direction() -> None:
    rows = VectorRows(np.array([1, 2]), np.array([7, 7]), np.stack([QUERY, -QUERY]))
    assert compute_page_means(rows, np.array([7])) @ QUERY == pytest.approx([0.0], abs=1e-6)


def test_the_page_as_a_whole_is_a_part_of_the_meaning() -> None:
    found = candidates([Row(1, 10, 0.2), Row(2, None, None, 0.5)])
    with_evidence = with_page_evidence(found, np.array([0.4, 0.0]), None)
    chunk, page, *_ = compute_features(with_evidence, SCALE)
    assert (chunk[0], page[0]) == pytest.approx((0.8, 0.4))
    assert with_evidence["distance"][0] == 0.2, "the distance remains that of the passage"
    assert np.isnan(with_evidence["page_cosine"][1]), "a page found by keyword alone has no passage to compare"


def test_passages_are_grouped_by_page_the_nearest_first() -> None:
    hits = VectorHits.rank(np.array([4, 2, 9, 1]), np.array([7, 8, 7, 6]), np.array([0.9, 0.8, 0.9, 1.1], np.float32))
    assert (hits.chunk_ids.tolist(), hits.page_ids.tolist()) == ([1, 4, 9, 2], [6, 7, 7, 8])
    assert hits.distances.tolist() == pytest.approx([0.0, 0.1, 0.1, 0.2])
    assert hits.chunk_ids[select_first(hits.page_ids)].tolist() == [1, 4, 2]
    assert hits.chunk_ids[select_first(hits.page_ids, 2)].tolist() == [1, 4, 9, 2]
    assert hits.chunk_ids[select_first(hits.page_ids, 2, [8, 7, 5])].tolist() == [4, 9, 2]
    assert select_first(hits.page_ids, 2, []) == []


def test_of_two_equally_near_passages_the_one_of_the_nearer_page_means_more() -> None:
    found = with_page_evidence(candidates([Row(1, 10, 0.3), Row(2, 20, 0.3)]), np.array([0.4, 0.6]), None)
    for mode in (SearchMode.HYBRID, SearchMode.SEMANTIC):
        assert rank_candidates(mode, found, QueryShape(), SCALE)["page_id"].tolist() == [2, 1]
