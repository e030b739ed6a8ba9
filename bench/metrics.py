"""How good a ranking is."""

import math
from collections.abc import Mapping, Sequence


def ndcg(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = 10) -> float:
    """Normalised discounted cumulative gain with linear gains, as trec_eval counts it."""
    gained = sum(relevant.get(page, 0) / math.log2(rank + 2) for rank, page in enumerate(ranking[:depth]))
    ideal = sorted(relevant.values(), reverse=True)[:depth]
    return gained / sum(grade / math.log2(rank + 2) for rank, grade in enumerate(ideal))


def recall(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = 10) -> float:
    return len(set(ranking[:depth]) & relevant.keys()) / len(relevant)


def reciprocal_rank(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = 10) -> float:
    return next((1 / (rank + 1) for rank, page in enumerate(ranking[:depth]) if page in relevant), 0.0)
