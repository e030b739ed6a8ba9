"""The mean of a page's passages, from samples of long pages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.caches.brute_force_index import random_vectors
from wikiholt.domain.index import VectorRows
from wikiholt.domain.page_means import MAX_SAMPLED_CHUNKS, sample_rows, score_means, score_page_rows


def make_rows(counts: list[int]) -> VectorRows:
    page_ids = np.repeat(np.arange(1, len(counts) + 1), counts).astype(np.int64)
    return VectorRows(np.arange(len(page_ids), dtype=np.int64), page_ids, random_vectors(len(page_ids), seed=3))


def test_the_score_of_a_page_is_the_cosine_of_its_mean() -> None:
    rows, query = make_rows([3, 1]), random_vectors(1, seed=9)[0]
    mean = rows.vectors[:3].mean(axis=0)
    expected = {1: float(mean @ query / np.linalg.norm(mean)), 2: float(rows.vectors[3] @ query)}
    assert score_page_rows(rows, query) == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.integers(1, 100), max_size=5))
def test_a_long_page_is_sampled_evenly_from_its_first_passage_on(counts: list[int]) -> None:
    rows = make_rows(counts)
    used = sample_rows(rows.page_ids)
    for page, count in enumerate(counts, 1):
        chosen = np.flatnonzero(rows.page_ids[used] == page)
        positions = used[chosen] - sum(counts[: page - 1])
        assert positions[0] == 0
        assert len(set(np.diff(positions).tolist())) <= 1
        assert len(positions) == count if count <= MAX_SAMPLED_CHUNKS else len(positions) > MAX_SAMPLED_CHUNKS / 2
        assert len(positions) <= MAX_SAMPLED_CHUNKS


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(counts: list[int], random: "np.random.Generator") -> None:
    rows, query = make_rows(counts), random_vectors(1, seed=9)[0]
    order = list(range(len(rows.page_ids)))
    random.shuffle(order)
    shuffled = VectorRows(rows.chunk_ids[order], rows.page_ids[order], rows.vectors[order])
    assert score_page_rows(shuffled, query) == score_page_rows(rows, query)


def test_without_rows_there_is_no_score() -> None:
    rows = make_rows([])
    assert score_page_rows(rows, random_vectors(1)[0]) == {}


def test_passages_that_cancel_out_score_zero() -> None:
    vector = random_vectors(1)[0]
    cosines = score_means(np.array([7, 7]), np.stack([vector, -vector]), vector)
    assert cosines == {7: pytest.approx(0.0, abs=1e-6)}
