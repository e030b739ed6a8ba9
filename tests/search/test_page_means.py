"""The means of the passages of pages, and what a search makes of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.caches.brute_force_index import random_vectors
from wikiholt.domain.index import IntArray, VectorHits, VectorRows
from wikiholt.domain.search import SearchMode
from wikiholt.search.ranking import Candidate, QueryShape, group_by_page, rank_candidates, with_page_evidence
from wikiholt.search.vector_channel import _MAX_CACHED_PAGES, PageMeans, compute_page_means

QUERY = random_vectors(1, seed=9)[0]


def make_rows(counts: list[int]) -> VectorRows:
    page_ids = np.repeat(np.arange(1, len(counts) + 1), counts).astype(np.int64)
    return VectorRows(np.arange(len(page_ids), dtype=np.int64), page_ids, random_vectors(len(page_ids), seed=3))


def select_rows(rows: VectorRows, chosen: object) -> VectorRows:
    return VectorRows(rows.chunk_ids[chosen], rows.page_ids[chosen], rows.vectors[chosen])


class PageReader:
    """Returns the rows of pages, and counts the pages it was asked for."""

    def __init__(self, rows: VectorRows) -> None:
        self.rows = rows
        self.requested: list[int] = []

    def __call__(self, page_ids: IntArray) -> VectorRows:
        self.requested += page_ids.tolist()
        return select_rows(self.rows, np.isin(self.rows.page_ids, page_ids))


def test_the_cosine_of_a_page_is_that_of_the_mean_of_its_passages() -> None:
    rows = make_rows([3, 1])
    mean = rows.vectors[:3].mean(axis=0)
    means = PageMeans().get(np.array([1, 2, 7]), 1, PageReader(rows))
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


def test_pages_are_read_once_for_a_version_of_the_index() -> None:
    means, reader = PageMeans(), PageReader(make_rows([2, 2, 2]))
    first = means.get(np.array([1, 2]), 1, reader)
    again = means.get(np.array([1, 2, 3]), 1, reader)
    assert again[:2].tolist() == first.tolist()
    assert reader.requested == [1, 2, 3]
    means.get(np.array([1]), 2, reader)
    assert reader.requested == [1, 2, 3, 1]


def test_the_means_of_a_large_wiki_do_not_fill_the_memory() -> None:
    count = _MAX_CACHED_PAGES + 1
    means, reader = PageMeans(), PageReader(make_rows([1] * count))
    means.get(np.arange(1, count + 1), 1, reader)
    means.get(np.array([1]), 1, reader)
    assert len(reader.requested) == count + 1


def test_the_page_as_a_whole_is_a_part_of_the_meaning() -> None:
    found = [Candidate(1, 10, 0.2), Candidate(2, None, None, 0.5)]
    by_passage, by_keyword = with_page_evidence(found, {1: 0.4, 2: 0.0}, {})
    assert (by_passage.chunk_meaning, by_passage.page_meaning) == pytest.approx((0.8, 0.4))
    assert by_passage.distance == 0.2, "the distance remains that of the passage"
    assert by_keyword == found[1]


def test_passages_are_grouped_by_page_the_nearest_first() -> None:
    hits = VectorHits.rank(np.array([4, 2, 9, 1]), np.array([7, 8, 7, 6]), np.array([0.9, 0.8, 0.9, 1.1], np.float32))
    assert (hits.chunk_ids.tolist(), hits.page_ids.tolist()) == ([1, 4, 9, 2], [6, 7, 7, 8])
    assert hits.distances.tolist() == pytest.approx([0.0, 0.1, 0.1, 0.2])
    assert [found.chunk_id for found in group_by_page(hits)] == [1, 4, 2]
    assert [found.chunk_id for found in group_by_page(hits, 2)] == [1, 4, 9, 2]
    assert [found.chunk_id for found in group_by_page(hits, 2, page_ids=[8, 7, 5])] == [4, 9, 2]
    assert group_by_page(hits, 2, page_ids=[]) == []


def test_of_two_equally_near_passages_the_one_of_the_nearer_page_means_more() -> None:
    far, near = with_page_evidence([Candidate(1, 10, 0.3), Candidate(2, 20, 0.3)], {1: 0.4, 2: 0.6}, {})
    for mode in (SearchMode.HYBRID, SearchMode.SEMANTIC):
        assert [found.page_id for found in rank_candidates(mode, [far, near], QueryShape())] == [2, 1]
