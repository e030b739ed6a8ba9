"""How pages found by meaning and by word become one list. Pure functions; the order is the same for every n.

Both channels give evidence on an absolute scale: the cosine of the page's nearest chunk, and the share its words have
of the best score any page could reach for the query. Hybrid search weighs the two equally, and counts what the page's
name has in common with the query beside them, as far as the meaning agrees. So a page's place comes from the page and
the query. Its score says how likely it is what was asked for, and for that the other pages count too: those of the
depth that is always looked at, however many hits are asked for.
"""

import heapq
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

RIVALS = 5
"""Other pages above whose words those of a page have to stand out."""


class Curve(NamedTuple):
    """A sum that goes through a logistic curve: what each thing counts, and what all of them must exceed."""

    exceed: float
    evidence: float = 0.0
    meaning: float = 0.0
    standing: float = 0.0
    lead: float = 0.0


WHETHER = {
    Mode.HYBRID: Curve(6.3, evidence=8.7, meaning=8.5, standing=12.5),
    Mode.SEMANTIC: Curve(8.9, meaning=21.0),
    Mode.KEYWORD: Curve(3.2, evidence=9.8, standing=4.6),
}
"""For each mode, how likely the wiki has what is asked for, by what speaks for a page of it."""

WHICH = {
    Mode.HYBRID: Curve(0.43, lead=12.9),
    Mode.SEMANTIC: Curve(1.32, lead=18.0),
    Mode.KEYWORD: Curve(0.79, lead=11.8),
}
"""For each mode, how likely it is this page if it is any. Both are fitted by bench/calibration, see docs/adr/0026."""

BEHIND = 3.0
"""What the lead counts for a page that has none, in the place of the above.

Where one page counts as right, all others are wrong however good they are; where people judged every page, four in ten
of the next four are right. Fitted to both kinds of questions, weighed alike.
"""

HIGH = 0.65
"""The score from which on a hit is called high: then four in five are right, and two thirds of the right ones are."""

MEDIUM = {Mode.HYBRID: 0.3, Mode.SEMANTIC: 0.15, Mode.KEYWORD: 0.15}
"""The same for medium. Of the first hits of questions that a wiki answers hardly three in a hundred are below.

By one channel alone it is the right page less often, so likelihoods are lower, and so is what is little for the mode.
"""

_ALIKE, _ALIKE_WIDTH = 0.565, 0.09
"""The likeness at which a page is as likely akin to another as not; by eye, since nobody has judged that."""

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
    """How likely it is what was asked for, once that is known: by its evidence, or by a reranker."""


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


class Rivals(NamedTuple):
    """What a page has to stand out from: the evidence of the two best pages and the best shares, each with its page."""

    best: tuple[tuple[float, int], ...] = ()
    shares: tuple[tuple[float, int], ...] = ()


def rivals(mode: Mode, found: Sequence[Candidate]) -> Rivals:
    """Of ranked candidates; they must be of the depth that does not depend on how many hits are asked for."""
    best: dict[int, float] = {}
    for candidate in found:
        best.setdefault(candidate.page_id, evidence(mode, candidate))
        if len(best) > 1:
            break
    shares = {candidate.page_id: candidate.share for candidate in found if candidate.share}
    most = heapq.nlargest(RIVALS + 1, ((share, page_id) for page_id, share in shares.items()))
    return Rivals(tuple((amount, page_id) for page_id, amount in best.items()), tuple(most))


class Grounds(NamedTuple):
    """What a page's score follows from."""

    evidence: float
    meaning: float
    standing: float
    """How far its share is above the mean of the best others'. A code that few pages hold stands out, words do not."""
    lead: float
    """How much more evidence it has than the best other page."""


def grounds(mode: Mode, candidate: Candidate, among: Rivals) -> Grounds:
    page_id, amount = candidate.page_id, evidence(mode, candidate)
    others = [share for share, holder in among.shares if holder != page_id][:RIVALS]
    return Grounds(
        amount,
        evidence(Mode.SEMANTIC, candidate),
        (candidate.share or 0.0) - sum(others) / RIVALS,
        amount - next((best for best, holder in among.best if holder != page_id), 0.0),
    )


def likelihood(mode: Mode, known: Grounds) -> float:
    """How likely a page is what was asked for: that the wiki has it at all, and that it is this page."""
    which = WHICH[mode] if known.lead >= 0 else WHICH[mode]._replace(lead=BEHIND)
    return _logistic(WHETHER[mode], known) * _logistic(which, known)


def scored(mode: Mode, best: Sequence[Candidate], among: Rivals) -> list[Candidate]:
    """The same candidates, each with how likely it is; those of which that is known keep it."""
    return [
        each if each.likelihood is not None else each._replace(likelihood=likelihood(mode, grounds(mode, each, among)))
        for each in best
    ]


def akin(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The same candidates, each with how likely it is akin to the page that others were compared with."""
    alike = Curve(_ALIKE / _ALIKE_WIDTH, meaning=1 / _ALIKE_WIDTH)
    among = Rivals()
    return [each._replace(likelihood=_logistic(alike, grounds(Mode.SEMANTIC, each, among))) for each in candidates]


class Judgement(NamedTuple):
    """What an answer says of a hit."""

    score: float
    confidence: Confidence


def judgements(mode: Mode, best: Sequence[Candidate]) -> list[Judgement]:
    """Of scored candidates; none is above the one before it, so that order and score tell one story."""
    most, found = 1.0, []
    for candidate in best:
        most = min(most, round(candidate.likelihood or 0.0, 4))
        found.append(Judgement(most, confidence(mode, most)))
    return found


def confidence(mode: Mode, value: float) -> Confidence:
    """A score in a word."""
    if value >= HIGH:
        return Confidence.HIGH
    return Confidence.MEDIUM if value >= MEDIUM[mode] else Confidence.LOW


def _logistic(curve: Curve, known: Grounds) -> float:
    weighed = sum(weight * amount for weight, amount in zip(curve[1:], known, strict=True))
    return 0.5 * (1 + math.tanh((weighed - curve.exceed) / 2))
