"""How pages found by meaning and by word become one list. Pure functions; the order is the same for every n.

Both channels give evidence on an absolute scale: the cosine of the page's nearest chunk, and the share its words have
of the best score any page could reach for the query. Hybrid search weighs the two equally, and counts what the page's
name has in common with the query beside them, as far as the meaning agrees. So a page's place and score come from the
page and the query; only that no hit is scored above the one before it comes from the others.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from wikiholt.model import Confidence, Ints, Mode, Neighbours, Scale

WORDS_WEIGHT = 0.5
"""The part of the words in hybrid evidence; meaning has the rest. Chosen by bench/quality, see docs/adr."""

NAMING_WEIGHT = 0.3
"""What a name that has the query's words adds to evidence of meaning; docs/adr/0024 has what else was tried."""

NAMING_BY_WORDS = 0.2
"""The same for search by words alone, where there is no meaning that could agree."""

_EVEN = {Mode.HYBRID: (0.52, 0.117), Mode.SEMANTIC: (0.52, 0.09), Mode.KEYWORD: (0.42, 0.12)}
"""For each mode, the evidence at which a hit is as likely right as wrong, and how fast that changes.

Placed by judged collections: the best hit of a question that a collection answers is hardly ever below, that of a
question from another collection hardly ever above; docs/adr/0024 has how often.
"""

_HIGH, _MEDIUM = 0.75, 0.25

_COSINES = Scale()


class Candidate(NamedTuple):
    """A page that may be a hit: its nearest chunk, its share of the best possible word score, and how far the query
    names it.

    A tuple and not a dataclass: every search makes hundreds.
    """

    page_id: int
    chunk_id: int | None = None
    distance: float | None = None
    share: float | None = None
    channels: tuple[str, ...] = ()
    naming: float = 0.0
    scale: Scale = _COSINES
    """What the distance means, which its model knows."""
    likelihood: float | None = None
    """The score a reranker has led to, in the place of the one its evidence gives."""


def best_by_page(near: Neighbours, per_page: int = 1, scale: Scale = _COSINES) -> list[Candidate]:
    """One candidate a page with its nearest chunk, or up to so many with the next ones, nearest first."""
    if per_page == 1:
        _, kept = np.unique(near.page_ids, return_index=True)
        kept.sort()
    else:
        kept = _first_few(near.page_ids, per_page)
    pages, chunks, distances = (array[kept].tolist() for array in (near.page_ids, near.chunk_ids, near.distances))
    rows = zip(pages, chunks, distances, strict=True)
    by = ("semantic",)
    return [Candidate(page, chunk, distance, None, by, scale=scale) for page, chunk, distance in rows]


def _first_few(page_ids: Ints, count: int) -> Ints:
    """The positions of the first few rows of each page."""
    seen: Counter[int] = Counter()
    kept = []
    for position, page_id in enumerate(page_ids.tolist()):
        seen[page_id] += 1
        if seen[page_id] <= count:
            kept.append(position)
    return np.array(kept, np.int64)


def joined(
    meaning: Sequence[Candidate], shares: Mapping[int, float], nearest: Mapping[int, Sequence[Candidate]]
) -> list[Candidate]:
    """Every page either channel found; `nearest` has the chunks of those that words alone found."""
    pages = []
    for near in meaning:
        share = shares.get(near.page_id)
        pages.append(near if share is None else near._replace(share=share, channels=("semantic", "keyword")))
    known = {candidate.page_id for candidate in meaning}
    for page_id, share in shares.items():
        if page_id not in known:
            chunks = nearest.get(page_id) or (Candidate(page_id),)
            pages += [near._replace(share=share, channels=("keyword",)) for near in chunks]
    return pages


def evidence(mode: Mode, candidate: Candidate) -> float:
    """What speaks for a candidate: up to 1, and for one that the query names a little more."""
    meaning = 0.0 if candidate.distance is None else candidate.scale.meaning(1.0 - candidate.distance)
    words = candidate.share or 0.0
    if mode is Mode.SEMANTIC:
        return meaning
    if mode is Mode.KEYWORD:
        return words + NAMING_BY_WORDS * candidate.naming
    return (1 - WORDS_WEIGHT) * meaning + WORDS_WEIGHT * words + NAMING_WEIGHT * candidate.naming * meaning


def ranked(mode: Mode, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first; ties go to the nearer page (evidence ends at nought, distance does not), then to the older."""
    return sorted(
        candidates,
        key=lambda each: (
            -evidence(mode, each),
            each.distance if each.distance is not None else math.inf,
            each.page_id,
        ),
    )


def score(mode: Mode, candidate: Candidate) -> float:
    """How likely a page is to be what was asked for, in [0, 1]: the strongest case its evidence makes.

    Meaning alone can make it (other words for the same thing), words alone can (a code that means nothing to a model),
    or both together and the name. The same evidence gives the same score for any query.
    """
    if candidate.likelihood is not None:
        return candidate.likelihood
    if mode is Mode.HYBRID:
        single = max(score(Mode.SEMANTIC, candidate), score(Mode.KEYWORD, candidate))
        return max(single, _likelihood(mode, evidence(mode, candidate)))
    return _likelihood(mode, evidence(mode, candidate._replace(naming=0.0)))


def scores(mode: Mode, best: Sequence[Candidate]) -> list[float]:
    """The scores of ranked candidates, none above the one before it, so that order and score tell one story."""
    found: list[float] = []
    for candidate in best:
        found.append(round(min(score(mode, candidate), *found[-1:], 1.0), 4))
    return found


def _likelihood(case: Mode, amount: float) -> float:
    even, width = _EVEN[case]
    return 1 / (1 + math.exp((even - amount) / width))


def confidence(value: float) -> Confidence:
    """A score in a word."""
    if value >= _HIGH:
        return Confidence.HIGH
    return Confidence.MEDIUM if value >= _MEDIUM else Confidence.LOW
