"""Logistic regression and calibration metrics: small, and without another dependency."""

import math
from collections.abc import Sequence

import numpy as np

from wikiholt.domain.index import FloatArray

_RIDGE = 1e-5
"""Ridge penalty as a share of the number of queries, so that weights stay finite."""


def fit_logistic(features: Sequence[FloatArray], yes: np.ndarray, weights: FloatArray) -> list[float]:
    """The constant and the weight of each feature, by Newton's method."""
    columns = np.column_stack(features)
    middle, spread = columns.mean(axis=0), columns.std(axis=0) + 1e-9
    known = np.column_stack([np.ones(len(columns)), (columns - middle) / spread])
    held = np.diag([0.0, *[_RIDGE * len(columns)] * columns.shape[1]])
    found = np.zeros(known.shape[1])
    for _ in range(50):
        likely = 1 / (1 + np.exp(-np.clip(known @ found, -30, 30)))
        slope = known.T @ (weights * (yes - likely)) - held @ found
        bend = (known * (weights * likely * (1 - likely))[:, None]).T @ known + held
        step = np.linalg.solve(bend, slope)
        found += step
        if np.abs(step).max() < 1e-9:
            break
    plain = found[1:] / spread
    return [float(found[0] - plain @ middle), *map(float, plain)]


def compute_brier(scores: FloatArray, right: FloatArray) -> float:
    """The mean squared error of scores."""
    return float(np.mean((scores - right) ** 2))


def compute_calibration_error(scores: FloatArray, right: FloatArray, bins: int = 10) -> float:
    """How far scores are from how often they are right, in as many groups of the same size."""
    groups = np.array_split(np.argsort(scores, kind="stable"), bins)
    return float(np.mean([abs(scores[group].mean() - right[group].mean()) for group in groups if len(group)]))


def format_share(yes: np.ndarray, *, bounds: bool = False, places: int = 0) -> str:
    """The part that is true in per cent, with Wilson's interval of 95 % if wanted."""
    if not len(yes):
        return "–"
    part, count = float(np.mean(yes)), len(yes)
    if not bounds:
        return f"{part:.{places}%}".replace("%", " %")
    z = 1.96
    middle = (part + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(part * (1 - part) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return f"{part:.0%} [{middle - half:.0%} {middle + half:.0%}]".replace("%", " %")
