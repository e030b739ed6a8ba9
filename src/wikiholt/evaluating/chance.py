"""How much of a figure, or of a difference between two, may be chance. Pure; the same seed gives the same numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

_RESAMPLES = 2_000
_EXCHANGES = 10_000
_AT_ONCE = 1 << 20
"""Numbers held at a time, so that many questions need no more memory than few."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the bounds that hold it with 95 % confidence."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Difference:
    """How much better the one is than the other, and how often chance alone would give a difference as large."""

    interval: Interval
    p_value: float
    better: int
    worse: int
    same: int


def interval(values: Sequence[float], seed: int = 0) -> Interval:
    """The mean of at least one value with its bootstrap interval (percentiles of the means of resamples)."""
    array = np.asarray(values, np.float64)
    draws = np.random.default_rng(seed)
    means = np.concatenate([_resampled(array, draws, count) for count in _portions(_RESAMPLES, len(array))])
    low, high = np.quantile(means, [0.025, 0.975]).tolist()
    return Interval(float(array.mean()), low, high)


def difference(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Difference:
    """The mean difference over the same questions, tested by exchanging the two at random, question by question."""
    gaps = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    draws = np.random.default_rng(seed)
    # A sum of the same gaps in another order may differ in its last digit.
    reached = abs(float(gaps.sum())) - 1e-9
    as_large = sum(_exchanged(gaps, draws, count, reached) for count in _portions(_EXCHANGES, len(gaps)))
    better, worse = int((gaps > 1e-9).sum()), int((gaps < -1e-9).sum())
    return Difference(
        interval(gaps.tolist(), seed), (as_large + 1) / (_EXCHANGES + 1), better, worse, len(gaps) - better - worse
    )


def _resampled(values: Doubles, draws: Generator, count: int) -> Doubles:
    return np.asarray(values[draws.integers(0, len(values), (count, len(values)))].mean(axis=1))


def _exchanged(gaps: Doubles, draws: Generator, count: int, reached: float) -> int:
    signs = draws.integers(0, 2, (count, len(gaps)), np.int8) * 2 - 1
    return int((np.abs(signs @ gaps) >= reached).sum())


def _portions(total: int, width: int) -> list[int]:
    each = max(1, _AT_ONCE // width)
    return [min(each, total - begun) for begun in range(0, total, each)]
