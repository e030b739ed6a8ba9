"""Metrics and their significance."""

import math
import random

import pytest

from wikiholt.wikis.evaluation.quality_metrics import (
    compute_difference,
    compute_interval,
    compute_ndcg,
    compute_recall,
    compute_reciprocal_rank,
    compute_success,
)


def test_a_ranking_with_all_relevant_pages_first_is_perfect() -> None:
    ranking, relevant = ["a", "b", "c"], {"a": 2, "b": 1}
    assert (
        compute_ndcg(ranking, relevant)
        == compute_recall(ranking, relevant)
        == compute_reciprocal_rank(ranking, relevant)
        == 1.0
    )
    assert compute_success(ranking, relevant) == 1.0


def test_later_pages_count_less_and_pages_after_ten_do_not_count() -> None:
    late = [*"bcdefghij", "a"]
    assert compute_ndcg(late, {"a": 1}) == pytest.approx(1 / math.log2(11))
    assert compute_reciprocal_rank(late, {"a": 1}) == pytest.approx(0.1)
    assert (compute_recall(late, {"a": 1}), compute_success(late, {"a": 1})) == (1.0, 0.0)
    too_late = ["x", *late]
    assert (
        compute_ndcg(too_late, {"a": 1})
        == compute_recall(too_late, {"a": 1})
        == compute_reciprocal_rank(too_late, {"a": 1})
        == 0.0
    )


def test_a_higher_grade_first_is_better_than_a_lower_one_first() -> None:
    relevant = {"a": 3, "b": 1}
    assert compute_ndcg(["a", "b"], relevant) == 1.0
    assert compute_ndcg(["b", "a"], relevant) == pytest.approx((1 + 3 / math.log2(3)) / (3 + 1 / math.log2(3)))


def test_an_empty_answer_scores_zero() -> None:
    assert [
        metric([], {"a": 1}) for metric in (compute_ndcg, compute_recall, compute_reciprocal_rank, compute_success)
    ] == [0, 0, 0, 0]


def test_an_interval_contains_its_mean_and_narrows_with_more_values() -> None:
    draws = random.Random(7)
    values = [float(draws.random() < 0.7) for _ in range(400)]
    few, many = compute_interval(values[:40]), compute_interval(values)
    for interval in (few, many):
        assert interval.low < interval.mean < interval.high
    assert many.high - many.low < few.high - few.low
    # The normal approximation of the same interval.
    spread = 1.96 * math.sqrt(many.mean * (1 - many.mean) / 400)
    assert many.high - many.low == pytest.approx(2 * spread, rel=0.15)


def test_the_same_seed_gives_the_same_interval_and_another_nearly_the_same() -> None:
    values = [0.0, 1.0, 1.0, 0.5, 0.25] * 20
    assert compute_interval(values, 3) == compute_interval(values, 3)
    assert compute_interval(values, 4).low == pytest.approx(compute_interval(values, 3).low, abs=0.03)


def test_equal_values_have_an_interval_of_width_zero() -> None:
    assert (compute_interval([0.5]).low, compute_interval([0.5] * 3).high) == (0.5, 0.5)


def test_a_large_and_steady_difference_is_significant() -> None:
    found = compute_difference([0.9] * 60, [0.5] * 60)
    assert found.p_value < 0.001
    assert (found.better, found.worse, found.same) == (60, 0, 0)
    assert found.interval.low == pytest.approx(0.4)


def test_differences_in_both_directions_are_not_significant() -> None:
    found = compute_difference([1.0, 0.0] * 30, [0.0, 1.0] * 30)
    assert found.p_value > 0.5
    assert (found.better, found.worse) == (30, 30)
    assert found.interval.mean == 0.0


def test_a_configuration_does_not_differ_from_itself() -> None:
    found = compute_difference([0.3, 0.7], [0.3, 0.7])
    assert (found.p_value, found.same) == (1.0, 2)


def test_three_equal_differences_have_a_p_value_of_a_quarter() -> None:
    # Of the eight permutations of three equal gaps, two give a sum as large.
    assert compute_difference([1.0] * 3, [0.0] * 3).p_value == pytest.approx(0.25, abs=0.02)
