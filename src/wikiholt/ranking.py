"""How pages found by meaning and by word become one list. Pure functions; the order is the same for every n."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from wikiholt.model import Confidence, Mode, Neighbours, WordHit

RANK_CONSTANT = 60
"""Reciprocal rank fusion's constant: how gently a lower rank counts less."""

MEANING_WEIGHT = 1.0
WORDS_WEIGHT = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A page that may be a hit.

    `distance` is set where it was found by meaning; `nearest` is its nearest chunk's distance where that was looked up
    for a page found by words alone.
    """

    page_id: int
    chunk_id: int | None = None
    distance: float | None = None
    word_score: float | None = None
    nearest: float | None = None

    @property
    def channels(self) -> tuple[str, ...]:
        found = (("semantic", self.distance), ("keyword", self.word_score))
        return tuple(name for name, evidence in found if evidence is not None)


def best_by_page(near: Neighbours) -> list[Candidate]:
    """One candidate a page, with its nearest chunk, nearest page first."""
    pages: dict[int, Candidate] = {}
    rows = zip(near.page_ids.tolist(), near.chunk_ids.tolist(), near.distances.tolist(), strict=True)
    for page_id, chunk_id, distance in rows:
        if page_id not in pages:
            pages[page_id] = Candidate(page_id, chunk_id, distance)
    return list(pages.values())


def ranked(mode: Mode, meaning: Sequence[Candidate], words: Sequence[WordHit]) -> list[Candidate]:
    """The candidates of a mode, best first."""
    if mode is Mode.SEMANTIC:
        return list(meaning)
    if mode is Mode.KEYWORD:
        return [Candidate(hit.page_id, word_score=hit.score) for hit in words]
    return fused(meaning, words)


def fused(meaning: Sequence[Candidate], words: Sequence[WordHit]) -> list[Candidate]:
    """Weighted reciprocal rank fusion; ties go to the nearer page, then to the older one."""
    points: dict[int, float] = {}
    for rank, candidate in enumerate(meaning):
        points[candidate.page_id] = MEANING_WEIGHT / (RANK_CONSTANT + rank + 1)
    for rank, hit in enumerate(words):
        points[hit.page_id] = points.get(hit.page_id, 0.0) + WORDS_WEIGHT / (RANK_CONSTANT + rank + 1)
    near: Mapping[int, Candidate] = {candidate.page_id: candidate for candidate in meaning}
    scores = {hit.page_id: hit.score for hit in words}

    def order(page_id: int) -> tuple[float, float, int]:
        candidate = near.get(page_id)
        return -points[page_id], candidate.distance or 0.0 if candidate else math.inf, page_id

    return [_joined(near.get(page_id), page_id, scores.get(page_id)) for page_id in sorted(points, key=order)]


def _joined(near: Candidate | None, page_id: int, score: float | None) -> Candidate:
    if near is None:
        return Candidate(page_id, word_score=score)
    return Candidate(page_id, near.chunk_id, near.distance, score)


def relevance(distance: float | None, coverage: float) -> float:
    """How likely a hit is to be what was asked for, in [0, 1]; the same evidence gives the same score for any query.

    `coverage` is the share of the query's words that the hit's passage holds.
    """
    if distance is None:
        return round(0.9 * coverage, 4)
    meaning = 1 / (1 + math.exp(-(1 - distance - 0.42) / 0.09))
    return round(1 - (1 - meaning) * (1 - 0.5 * coverage), 4)


def confidence(score: float) -> Confidence:
    if score >= 0.7:
        return Confidence.HIGH
    return Confidence.MEDIUM if score >= 0.35 else Confidence.LOW


def descending(scores: Sequence[float]) -> list[float]:
    """Scores that never rise down the list, so that order and score tell one story."""
    lowest = 1.0
    result = []
    for score in scores:
        lowest = min(lowest, score)
        result.append(lowest)
    return result
