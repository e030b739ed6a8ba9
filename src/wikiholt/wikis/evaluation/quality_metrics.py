"""Ranking metrics, confidence intervals and significance tests. Pure; the same seed gives the same numbers."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

DoubleArray = NDArray[np.float64]

_RESAMPLE_COUNT = 2_000
_PERMUTATION_COUNT = 10_000
_MAX_BATCH_NUMBERS = 1 << 20
"""Numbers in memory at a time, so that memory does not grow with the number of questions."""
RANKING_DEPTH = 10


@dataclass(frozen=True, slots=True)
class ConfidenceInterval:
    """A mean with its 95 % confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class MetricDifference:
    """The mean difference of two configurations, with its p-value, and on how many questions each is better."""

    interval: ConfidenceInterval
    p_value: float
    better: int
    worse: int
    same: int


def compute_interval(values: Sequence[float], seed: int = 0) -> ConfidenceInterval:
    """The mean of at least one value with its percentile bootstrap interval."""
    array = np.asarray(values, np.float64)
    generator = np.random.default_rng(seed)
    means = np.concatenate(
        [_compute_resampled_means(array, generator, count) for count in _split_batches(_RESAMPLE_COUNT, len(array))]
    )
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    return ConfidenceInterval(float(array.mean()), low, high)


def compute_difference(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> MetricDifference:
    """The mean difference over the same questions, with a permutation test that swaps the two per question."""
    gaps = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    generator = np.random.default_rng(seed)
    # The tolerance covers rounding: the sum depends on the order of the terms.
    threshold = abs(float(gaps.sum())) - 1e-9
    as_large = sum(
        _count_as_large(gaps, generator, count, threshold) for count in _split_batches(_PERMUTATION_COUNT, len(gaps))
    )
    better, worse = int((gaps > 1e-9).sum()), int((gaps < -1e-9).sum())
    return MetricDifference(
        compute_interval(gaps.tolist(), seed),
        (as_large + 1) / (_PERMUTATION_COUNT + 1),
        better,
        worse,
        len(gaps) - better - worse,
    )


def _compute_resampled_means(values: DoubleArray, generator: Generator, count: int) -> DoubleArray:
    return np.asarray(values[generator.integers(0, len(values), (count, len(values)))].mean(axis=1))


def _count_as_large(gaps: DoubleArray, generator: Generator, count: int, threshold: float) -> int:
    signs = generator.integers(0, 2, (count, len(gaps)), np.int8) * 2 - 1
    return int((np.abs(signs @ gaps) >= threshold).sum())


def _split_batches(total: int, width: int) -> list[int]:
    size = max(1, _MAX_BATCH_NUMBERS // width)
    return [min(size, total - start) for start in range(0, total, size)]


# Metrics of one ranking. Pages are named by path; `relevant` has the grade of each relevant page.


def compute_ndcg(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = RANKING_DEPTH) -> float:
    """Normalised discounted cumulative gain with linear gains, as in trec_eval."""
    gain = sum(relevant.get(page, 0) / math.log2(rank + 2) for rank, page in enumerate(ranking[:depth]))
    ideal = sorted(relevant.values(), reverse=True)[:depth]
    return gain / sum(grade / math.log2(rank + 2) for rank, grade in enumerate(ideal))


def compute_recall(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = RANKING_DEPTH) -> float:
    """The share of relevant pages among the first `depth`."""
    return len(set(ranking[:depth]) & relevant.keys()) / len(relevant)


def compute_reciprocal_rank(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = RANKING_DEPTH) -> float:
    """One over the rank of the first relevant page; 0 if there is none among the first `depth`."""
    return next((1 / (rank + 1) for rank, page in enumerate(ranking[:depth]) if page in relevant), 0.0)


def compute_success(ranking: Sequence[str], relevant: Mapping[str, int]) -> float:
    """1 if the first page is relevant, else 0."""
    return float(bool(ranking) and ranking[0] in relevant)


METRICS = {
    "ndcg@10": compute_ndcg,
    "recall@10": compute_recall,
    "mrr": compute_reciprocal_rank,
    "success@1": compute_success,
}
"""The reported metrics, by name."""
