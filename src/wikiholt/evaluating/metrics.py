"""How good a ranking is. Pages are named by their paths; `relevant` has the grade of each page that was wanted."""

import math
from collections.abc import Mapping, Sequence

RANKING_DEPTH = 10


def compute_ndcg(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = RANKING_DEPTH) -> float:
    """Normalised discounted cumulative gain with linear gains, as trec_eval counts it."""
    gained = sum(relevant.get(page, 0) / math.log2(rank + 2) for rank, page in enumerate(ranking[:depth]))
    ideal = sorted(relevant.values(), reverse=True)[:depth]
    return gained / sum(grade / math.log2(rank + 2) for rank, grade in enumerate(ideal))


def compute_recall(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = RANKING_DEPTH) -> float:
    """The part of the wanted pages that is among the first."""
    return len(set(ranking[:depth]) & relevant.keys()) / len(relevant)


def compute_reciprocal_rank(ranking: Sequence[str], relevant: Mapping[str, int], depth: int = RANKING_DEPTH) -> float:
    """One over the rank of the first wanted page; nought where none is among the first."""
    return next((1 / (rank + 1) for rank, page in enumerate(ranking[:depth]) if page in relevant), 0.0)


def compute_success(ranking: Sequence[str], relevant: Mapping[str, int]) -> float:
    """Whether the first page is a wanted one."""
    return float(bool(ranking) and ranking[0] in relevant)


METRICS = {"ndcg@10": compute_ndcg, "recall@10": compute_recall, "mrr": compute_reciprocal_rank, "success@1": compute_success}
"""What is reported, by the names it is reported under."""
