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

from wikiholt.domain.index import CosineScale, IntArray, VectorHits
from wikiholt.domain.search import Confidence, SearchMode

KEYWORD_WEIGHT = 0.5
"""The part of the words in hybrid evidence; meaning has the rest. Chosen by bench/quality, see docs/adr."""

TITLE_WEIGHT = 0.3
"""What a name that has the query's words adds to evidence of meaning; docs/adr/0024 has what else was tried."""

TITLE_WEIGHT_KEYWORD = 0.2
"""The same for search by words alone, where there is no meaning that could agree."""

COMPETING_PAGES = 5
"""Other pages above whose words those of a page have to stand out."""


class ScoreCurve(NamedTuple):
    """A sum that goes through a logistic curve: what each thing counts, and what all of them must exceed."""

    bias: float
    evidence: float = 0.0
    meaning: float = 0.0
    word_margin: float = 0.0
    lead: float = 0.0


ANSWERABLE_CURVES = {
    SearchMode.HYBRID: ScoreCurve(6.3, evidence=8.7, meaning=8.5, word_margin=12.5),
    SearchMode.SEMANTIC: ScoreCurve(8.9, meaning=21.0),
    SearchMode.KEYWORD: ScoreCurve(3.2, evidence=9.8, word_margin=4.6),
}
"""For each mode, how likely the wiki has what is asked for, by what speaks for a page of it."""

IS_THE_PAGE_CURVES = {
    SearchMode.HYBRID: ScoreCurve(0.43, lead=12.9),
    SearchMode.SEMANTIC: ScoreCurve(1.32, lead=18.0),
    SearchMode.KEYWORD: ScoreCurve(0.79, lead=11.8),
}
"""For each mode, how likely it is this page if it is any. Both are fitted by bench/calibration, see docs/adr/0026."""

TRAILING_LEAD_WEIGHT = 3.0
"""What the lead counts for a page that has none, in the place of the above.

Where one page counts as right, all others are wrong however good they are; where people judged every page, four in ten
of the next four are right. Fitted to both kinds of questions, weighed alike.
"""

HIGH_SCORE = 0.65
"""The score from which on a hit is called high: then four in five are right, and two thirds of the right ones are."""

MEDIUM_SCORES = {SearchMode.HYBRID: 0.3, SearchMode.SEMANTIC: 0.15, SearchMode.KEYWORD: 0.15}
"""The same for medium. Of the first hits of questions that a wiki answers hardly three in a hundred are below.

By one channel alone it is the right page less often, so likelihoods are lower, and so is what is little for the mode.
"""

_RELATED_MIDPOINT, _RELATED_WIDTH = 0.565, 0.09
"""The likeness at which a page is as likely akin to another as not; by eye, since nobody has judged that."""

_DEFAULT_SCALE = CosineScale()


class Candidate(NamedTuple):
    """A page that may be a hit: its nearest chunk, its share of the best possible word score, and how far the query
    names it.

    A tuple and not a dataclass: every search makes hundreds.
    """

    page_id: int
    chunk_id: int | None = None
    distance: float | None = None
    keyword_share: float | None = None
    channels: tuple[str, ...] = ()
    title_overlap: float = 0.0
    scale: CosineScale = _DEFAULT_SCALE
    """What the distance means, which its model knows."""
    likelihood: float | None = None
    """How likely it is what was asked for, once that is known: by its evidence, or by a reranker."""


def group_by_page(hits: VectorHits, per_page: int = 1, scale: CosineScale = _DEFAULT_SCALE) -> list[Candidate]:
    """One candidate a page with its nearest chunk, or up to so many with the next ones, nearest first."""
    if per_page == 1:
        _, kept = np.unique(hits.page_ids, return_index=True)
        kept.sort()
    else:
        kept = _find_first_rows(hits.page_ids, per_page)
    pages, chunks, distances = (array[kept].tolist() for array in (hits.page_ids, hits.chunk_ids, hits.distances))
    rows = zip(pages, chunks, distances, strict=True)
    by = ("semantic",)
    return [Candidate(page, chunk, distance, None, by, scale=scale) for page, chunk, distance in rows]


def _find_first_rows(page_ids: IntArray, count: int) -> IntArray:
    """The positions of the first few rows of each page."""
    seen: Counter[int] = Counter()
    kept = []
    for position, page_id in enumerate(page_ids.tolist()):
        seen[page_id] += 1
        if seen[page_id] <= count:
            kept.append(position)
    return np.array(kept, np.int64)


def merge_channels(
    meaning: Sequence[Candidate], shares: Mapping[int, float], nearest: Mapping[int, Sequence[Candidate]]
) -> list[Candidate]:
    """Every page either channel found; `nearest` has the chunks of those that words alone found."""
    pages = []
    for near in meaning:
        share = shares.get(near.page_id)
        pages.append(near if share is None else near._replace(keyword_share=share, channels=("semantic", "keyword")))
    known = {candidate.page_id for candidate in meaning}
    for page_id, share in shares.items():
        if page_id not in known:
            chunks = nearest.get(page_id) or (Candidate(page_id),)
            pages += [near._replace(keyword_share=share, channels=("keyword",)) for near in chunks]
    return pages


def compute_evidence(mode: SearchMode, candidate: Candidate) -> float:
    """What speaks for a candidate: up to 1, and for one that the query names a little more."""
    meaning = 0.0 if candidate.distance is None else candidate.scale.normalize(1.0 - candidate.distance)
    words = candidate.keyword_share or 0.0
    if mode is SearchMode.SEMANTIC:
        return meaning
    if mode is SearchMode.KEYWORD:
        return words + TITLE_WEIGHT_KEYWORD * candidate.title_overlap
    return (1 - KEYWORD_WEIGHT) * meaning + KEYWORD_WEIGHT * words + TITLE_WEIGHT * candidate.title_overlap * meaning


def rank_candidates(mode: SearchMode, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first; ties go to the nearer page (evidence ends at nought, distance does not), then to the older."""
    return sorted(
        candidates,
        key=lambda each: (
            -compute_evidence(mode, each),
            each.distance if each.distance is not None else math.inf,
            each.page_id,
        ),
    )


class Competition(NamedTuple):
    """What a page has to stand out from: the evidence of the two best pages and the best shares, each with its page."""

    best: tuple[tuple[float, int], ...] = ()
    shares: tuple[tuple[float, int], ...] = ()


def get_competition(mode: SearchMode, candidates: Sequence[Candidate]) -> Competition:
    """Of ranked candidates; they must be of the depth that does not depend on how many hits are asked for."""
    best: dict[int, float] = {}
    for candidate in candidates:
        best.setdefault(candidate.page_id, compute_evidence(mode, candidate))
        if len(best) > 1:
            break
    shares = {candidate.page_id: candidate.keyword_share for candidate in candidates if candidate.keyword_share}
    most = heapq.nlargest(COMPETING_PAGES + 1, ((share, page_id) for page_id, share in shares.items()))
    return Competition(tuple((amount, page_id) for page_id, amount in best.items()), tuple(most))


class ScoreFeatures(NamedTuple):
    """What a page's score follows from."""

    evidence: float
    meaning: float
    word_margin: float
    """How far its share is above the mean of the best others'. A code that few pages hold stands out, words do not."""
    lead: float
    """How much more evidence it has than the best other page."""


def get_score_features(mode: SearchMode, candidate: Candidate, competition: Competition) -> ScoreFeatures:
    page_id, amount = candidate.page_id, compute_evidence(mode, candidate)
    others = [share for share, holder in competition.shares if holder != page_id][:COMPETING_PAGES]
    return ScoreFeatures(
        amount,
        compute_evidence(SearchMode.SEMANTIC, candidate),
        (candidate.keyword_share or 0.0) - sum(others) / COMPETING_PAGES,
        amount - next((best for best, holder in competition.best if holder != page_id), 0.0),
    )


def compute_likelihood(mode: SearchMode, features: ScoreFeatures) -> float:
    """How likely a page is what was asked for: that the wiki has it at all, and that it is this page."""
    which = (
        IS_THE_PAGE_CURVES[mode] if features.lead >= 0 else IS_THE_PAGE_CURVES[mode]._replace(lead=TRAILING_LEAD_WEIGHT)
    )
    return _apply_curve(ANSWERABLE_CURVES[mode], features) * _apply_curve(which, features)


def with_likelihoods(mode: SearchMode, candidates: Sequence[Candidate], competition: Competition) -> list[Candidate]:
    """The same candidates, each with how likely it is; those of which that is known keep it."""
    return [
        each
        if each.likelihood is not None
        else each._replace(likelihood=compute_likelihood(mode, get_score_features(mode, each, competition)))
        for each in candidates
    ]


def with_related_likelihoods(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The same candidates, each with how likely it is akin to the page that others were compared with."""
    alike = ScoreCurve(_RELATED_MIDPOINT / _RELATED_WIDTH, meaning=1 / _RELATED_WIDTH)
    among = Competition()
    return [
        each._replace(likelihood=_apply_curve(alike, get_score_features(SearchMode.SEMANTIC, each, among)))
        for each in candidates
    ]


class HitRating(NamedTuple):
    """What an answer says of a hit."""

    score: float
    confidence: Confidence


def rate_hits(mode: SearchMode, candidates: Sequence[Candidate]) -> list[HitRating]:
    """Of scored candidates; none is above the one before it, so that order and score tell one story."""
    most, found = 1.0, []
    for candidate in candidates:
        most = min(most, round(candidate.likelihood or 0.0, 4))
        found.append(HitRating(most, get_confidence(mode, most)))
    return found


def get_confidence(mode: SearchMode, score: float) -> Confidence:
    """A score in a word."""
    if score >= HIGH_SCORE:
        return Confidence.HIGH
    return Confidence.MEDIUM if score >= MEDIUM_SCORES[mode] else Confidence.LOW


def _apply_curve(curve: ScoreCurve, features: ScoreFeatures) -> float:
    weighed = sum(weight * amount for weight, amount in zip(curve[1:], features, strict=True))
    return 0.5 * (1 + math.tanh((weighed - curve.bias) / 2))
