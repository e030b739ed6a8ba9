"""Merges pages found by meaning and by keyword into one ranked list. Pure functions; the order does not depend on n.

Both channels give evidence on an absolute scale: the cosines of the page's nearest chunk and of the page as a whole,
and its keyword score as a share of the best possible score for the query. Hybrid search adds the overlap between the
page's title and the query, in proportion to the meaning. A page's rank therefore depends only on the page and the
query. Its score is the likelihood that it is the page wanted. That also depends on the competing pages, which are read
to a fixed depth regardless of n.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from wikiholt.domain.index import CosineScale, VectorHits
from wikiholt.domain.search import Confidence, SearchMode

KEYWORD_WEIGHT = 0.4
"""Weight of keywords in hybrid evidence; meaning has the rest. Chosen with bench/pages, see docs/adr/0044."""

PAGE_WEIGHT = 0.4
"""Weight of the page as a whole in its meaning; the nearest chunk has the rest. See docs/adr/0044."""

TITLE_WEIGHT = 0.3
"""Weight of the title overlap in evidence by meaning. docs/adr/0024 lists the alternatives."""

TITLE_WEIGHT_KEYWORD = 0.2
"""The same for keyword search, where meaning cannot confirm the overlap."""

COMPETING_PAGES = 5
"""Number of competing pages whose mean keyword share a page is compared with."""

LARGE_WIKI_PAGES, SMALL_WIKI_PAGES = 1000, 30
"""Numbers of pages between which the size of a wiki changes its scores."""


class ScoreCurve(NamedTuple):
    """A logistic curve over a weighted sum: the weight of each feature, and the bias that is subtracted."""

    bias: float
    evidence: float = 0.0
    meaning: float = 0.0
    word_margin: float = 0.0
    lead: float = 0.0
    smallness: float = 0.0


ANSWERABLE_CURVES = {
    SearchMode.HYBRID: ScoreCurve(6.3, evidence=8.7, meaning=8.5, word_margin=12.5, smallness=0.1),
    SearchMode.SEMANTIC: ScoreCurve(8.9, meaning=21.0, smallness=0.4),
    SearchMode.KEYWORD: ScoreCurve(3.2, evidence=9.8, word_margin=4.6, smallness=0.2),
}
"""For each mode, how likely the wiki contains an answer, by the features of a page. The weights of smallness are chosen
with bench/small_wikis."""

IS_THE_PAGE_CURVES = {
    SearchMode.HYBRID: ScoreCurve(0.43, lead=12.9),
    SearchMode.SEMANTIC: ScoreCurve(1.32, lead=18.0),
    SearchMode.KEYWORD: ScoreCurve(0.79, lead=11.8),
}
"""For each mode, how likely this page is the answer if there is one. Both are fitted by bench/calibration, see
docs/adr/0026."""

TRAILING_LEAD_WEIGHT = 3.0
"""Weight of the lead if it is negative, instead of the weight above.

In questions with a single right page all others count as wrong, however good they are; where people judged every page,
four in ten of the next four are right. Fitted to both kinds of questions with equal weight.
"""

_TRAILING_CURVES = {mode: curve._replace(lead=TRAILING_LEAD_WEIGHT) for mode, curve in IS_THE_PAGE_CURVES.items()}

HIGH_SCORE = 0.7
"""Scores from here on are rated high: nearly nine in ten such hits are right, and three in five right hits are high.
See docs/adr/0038 and 0044."""

MEDIUM_SCORES = {SearchMode.HYBRID: 0.27, SearchMode.SEMANTIC: 0.15, SearchMode.KEYWORD: 0.15}
"""The same for medium. Of the first hits of questions that a wiki answers, under two in a hundred are below in hybrid
search, under four in the others.

A single channel finds the right page less often, so its likelihoods and its thresholds are lower.
"""

ANSWER_SUMS = {SearchMode.HYBRID: 0.75, SearchMode.SEMANTIC: 0.45, SearchMode.KEYWORD: 0.5}
"""For each mode, the sum of the likelihoods of the best pages from which on the wiki has an answer, in a large wiki.

Chosen with bench/calibration and bench/small_wikis, see docs/adr/0047.
"""

SUMMED_PAGES = 5
"""Number of pages whose likelihoods are added."""

SMALLNESS_REDUCTION = 0.09
"""The share of the sum that is not required for each unit of smallness: a small wiki has few pages about a topic."""

CLEAR_FACTOR = 1.5
"""A first page this many times as likely as medium needs no others: a code may be on one page only."""

_MEDIUM_STEP = 0.05
"""How far above or below medium the first hit is then. Pages that are nearly as good are on the same side."""

_DEFAULT_SCALE = CosineScale()
_SEMANTIC, _KEYWORD = SearchMode.SEMANTIC, SearchMode.KEYWORD
"""Reading a member of an enumeration takes longer than the rest of a comparison."""


class Candidate(NamedTuple):
    """A page that may become a hit: its nearest chunk, its keyword share, and its title overlap.

    A tuple and not a dataclass, because every search makes hundreds.
    """

    page_id: int
    chunk_id: int | None = None
    distance: float | None = None
    keyword_share: float | None = None
    channels: tuple[str, ...] = ()
    title_overlap: float = 0.0
    scale: CosineScale = _DEFAULT_SCALE
    """How to interpret the distance; depends on the model."""
    likelihood: float | None = None
    """How likely this is the page wanted: by its evidence, or by the place a reranker gave it. None until computed."""
    order_score: float | None = None
    """The score by which a reranker ordered it. None means its evidence."""
    cosine: float | None = None
    """The cosine of its nearest chunk mixed with that of the page as a whole. None means that of the chunk alone."""

    def with_share(self, share: float, channels: tuple[str, ...]) -> "Candidate":
        """The candidate as found by keyword. Faster than `_replace`."""
        page_id, chunk_id, distance, _, _, overlap, scale, likelihood, order_score, cosine = self
        return Candidate(page_id, chunk_id, distance, share, channels, overlap, scale, likelihood, order_score, cosine)

    @property
    def meaning(self) -> float:
        """The evidence of its vectors on the common scale."""
        if self.cosine is not None:
            return self.scale.normalize(self.cosine)
        return 0.0 if self.distance is None else self.scale.normalize(1.0 - self.distance)


def group_by_page(
    hits: VectorHits,
    per_page: int = 1,
    scale: CosineScale = _DEFAULT_SCALE,
    page_ids: Collection[int] | None = None,
) -> list[Candidate]:
    """Up to `per_page` candidates per page with its nearest chunks, nearest first; only of `page_ids` if given."""
    channels = ("semantic",)
    # Loops over a few hundred rows take less time than the calls of numpy that would replace them.
    left = {} if page_ids is None else dict.fromkeys(page_ids, per_page)
    wanted = -1 if page_ids is None else per_page * len(left)
    found: list[Candidate] = []
    columns = hits.page_ids, hits.chunk_ids, hits.distances
    for page_id, chunk_id, distance in zip(*(column.tolist() for column in columns), strict=True):
        count = left.get(page_id, per_page if page_ids is None else 0)
        if count:
            left[page_id] = count - 1
            found.append(Candidate(page_id, chunk_id, distance, None, channels, 0.0, scale))
            if len(found) == wanted:
                break
    return found


def merge_channels(
    meaning: Sequence[Candidate], shares: Mapping[int, float], nearest: Mapping[int, Sequence[Candidate]]
) -> list[Candidate]:
    """All pages found by either channel. `nearest` has the chunks of pages found only by keyword."""
    pages = []
    both, keyword = ("semantic", "keyword"), ("keyword",)
    for near in meaning:
        share = shares.get(near.page_id)
        pages.append(near if share is None else near.with_share(share, both))
    known = {candidate.page_id for candidate in meaning}
    for page_id, share in shares.items():
        if page_id not in known:
            chunks = nearest.get(page_id) or (Candidate(page_id),)
            pages += [near.with_share(share, keyword) for near in chunks]
    return pages


def with_page_evidence(
    candidates: Sequence[Candidate], page_cosines: Mapping[int, float], title_overlaps: Mapping[int, float]
) -> list[Candidate]:
    """The unranked candidates with their title overlaps; their meaning includes the cosine of the page as a whole.

    Faster than `_replace`.
    """
    found = []
    for page_id, chunk_id, distance, share, channels, _, scale, _, _, _ in candidates:
        cosine = None
        if distance is not None and page_cosines:
            cosine = (1 - PAGE_WEIGHT) * (1.0 - distance) + PAGE_WEIGHT * page_cosines[page_id]
        overlap = title_overlaps.get(page_id, 0.0)
        found.append(Candidate(page_id, chunk_id, distance, share, channels, overlap, scale, None, None, cosine))
    return found


def compute_evidence(mode: SearchMode, candidate: Candidate) -> float:
    """Evidence for a candidate: at most 1, or slightly more with title overlap."""
    meaning = candidate.meaning
    if mode is _SEMANTIC:
        return meaning
    words = candidate.keyword_share or 0.0
    if mode is _KEYWORD:
        return words + TITLE_WEIGHT_KEYWORD * candidate.title_overlap
    return (1 - KEYWORD_WEIGHT) * meaning + KEYWORD_WEIGHT * words + TITLE_WEIGHT * candidate.title_overlap * meaning


def get_order_score(mode: SearchMode, candidate: Candidate) -> float:
    """The score by which the candidate was ordered."""
    return compute_evidence(mode, candidate) if candidate.order_score is None else candidate.order_score


def rank_candidates(mode: SearchMode, candidates: Sequence[Candidate]) -> list[Candidate]:
    """Best first. Ties go to the nearer page (evidence is cut off at zero, distance is not), then to the lower id."""
    keys = [
        (
            -compute_evidence(mode, candidate),
            candidate.distance if candidate.distance is not None else math.inf,
            candidate.page_id,
            number,
        )
        for number, candidate in enumerate(candidates)
    ]
    return [candidates[number] for _, _, _, number in sorted(keys)]


class Competition(NamedTuple):
    """The best evidence of two pages, the best keyword shares and the best meanings, each with its page id.

    `page_count` is the number of pages of the wiki.
    """

    best: tuple[tuple[float, int], ...] = ()
    shares: tuple[tuple[float, int], ...] = ()
    meanings: tuple[tuple[float, int], ...] = ()
    page_count: int = LARGE_WIKI_PAGES


def get_competition(
    mode: SearchMode, candidates: Sequence[Candidate], page_count: int = LARGE_WIKI_PAGES
) -> Competition:
    """The competition among ranked candidates. Their depth must not depend on the number of hits requested."""
    best: dict[int, float] = {}
    for candidate in candidates:
        best.setdefault(candidate.page_id, compute_evidence(mode, candidate))
        if len(best) > 1:
            break
    shares = {candidate.page_id: candidate.keyword_share for candidate in candidates if candidate.keyword_share}
    best_shares = sorted(((share, page_id) for page_id, share in shares.items()), reverse=True)[: COMPETING_PAGES + 1]
    meanings = _find_best_meanings(candidates)
    best_evidence = tuple((evidence, page_id) for page_id, evidence in best.items())
    return Competition(best_evidence, tuple(best_shares), meanings, page_count)


def _find_best_meanings(candidates: Sequence[Candidate]) -> tuple[tuple[float, int], ...]:
    """The highest meanings of two pages, each with its page id."""
    best = second = (0.0, -1)
    for candidate in candidates:
        meaning = candidate.meaning
        if meaning <= second[0]:
            continue
        page_id = candidate.page_id
        if meaning > best[0]:
            best, second = (meaning, page_id), best if best[1] != page_id else second
        elif page_id != best[1]:
            second = (meaning, page_id)
    return best, second


class ScoreFeatures(NamedTuple):
    """The features from which a page's score is computed."""

    evidence: float
    meaning: float
    word_margin: float
    """Its keyword share minus the mean of the best others. High for a code on few pages, low for common words."""
    lead: float
    """Its evidence minus that of the best other page."""
    meaning_lead: float = 0.0
    """Its meaning minus that of the best other page."""
    smallness: float = 0.0
    """The logarithm of how many times more pages a large wiki has. The more pages, the better the best page fits a
    question that none of them answers."""


def get_score_features(mode: SearchMode, candidate: Candidate, competition: Competition) -> ScoreFeatures:
    page_id, evidence = candidate.page_id, compute_evidence(mode, candidate)
    meaning = candidate.meaning
    others = [share for share, other_id in competition.shares if other_id != page_id][:COMPETING_PAGES]
    return ScoreFeatures(
        evidence,
        meaning,
        (candidate.keyword_share or 0.0) - sum(others) / COMPETING_PAGES,
        evidence - _get_best_other(competition.best, page_id),
        meaning - _get_best_other(competition.meanings, page_id),
        compute_smallness(competition.page_count),
    )


def compute_smallness(page_count: int) -> float:
    """The feature `smallness` of a wiki: 0 if it is large."""
    return math.log(LARGE_WIKI_PAGES / min(max(page_count, SMALL_WIKI_PAGES), LARGE_WIKI_PAGES))


def _get_best_other(best: Sequence[tuple[float, int]], page_id: int) -> float:
    return next((value for value, other_id in best if other_id != page_id), 0.0)


def compute_likelihood(mode: SearchMode, features: ScoreFeatures) -> float:
    """How likely a page is the one wanted: the wiki has an answer, and it is this page.

    In hybrid search it is at least what the meaning alone earns: words of the query that are on no page do not count
    against a page that means the same.
    """
    likelihood = _apply_curves(mode, features)
    if mode is not SearchMode.HYBRID:
        return likelihood
    by_meaning = features._replace(evidence=features.meaning, lead=features.meaning_lead)
    return max(likelihood, _apply_curves(SearchMode.SEMANTIC, by_meaning))


def _apply_curves(mode: SearchMode, features: ScoreFeatures) -> float:
    curve = (IS_THE_PAGE_CURVES if features.lead >= 0 else _TRAILING_CURVES)[mode]
    return apply_curve(ANSWERABLE_CURVES[mode], features) * apply_curve(curve, features)


def with_likelihoods(mode: SearchMode, candidates: Sequence[Candidate], competition: Competition) -> list[Candidate]:
    """The same candidates with likelihoods. A likelihood that is already set is kept."""
    return [
        candidate
        if candidate.likelihood is not None
        else candidate._replace(likelihood=compute_likelihood(mode, get_score_features(mode, candidate, competition)))
        for candidate in candidates
    ]


class HitRating(NamedTuple):
    """The score and confidence of a hit."""

    score: float
    confidence: Confidence


def limit_likelihoods(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The same candidates; no likelihood exceeds the one before it, so that scores follow the ranking."""
    lowest, limited = 1.0, []
    for candidate in candidates:
        lowest = min(lowest, candidate.likelihood or 0.0)
        limited.append(candidate if candidate.likelihood == lowest else candidate._replace(likelihood=lowest))
    return limited


def align_likelihoods(mode: SearchMode, candidates: Sequence[Candidate], page_count: int) -> list[Candidate]:
    """The same candidates, best first; the first is at least medium if the wiki has an answer, and below if not.

    It has one if the best pages together are likely enough, because equally good pages share the likelihood, or if the
    first one is. If the first does not agree, all likelihoods are multiplied by the same factor.
    """
    by_page: dict[int, float] = {}
    for candidate in candidates:
        by_page.setdefault(candidate.page_id, candidate.likelihood or 0.0)
        if len(by_page) == SUMMED_PAGES:
            break
    first, medium = next(iter(by_page.values()), 0.0), MEDIUM_SCORES[mode]
    least_sum = ANSWER_SUMS[mode] * (1 - SMALLNESS_REDUCTION * compute_smallness(page_count))
    has_answer = sum(by_page.values()) >= least_sum or first >= CLEAR_FACTOR * medium
    if not first or has_answer == (first >= medium):
        return list(candidates)
    factor = (medium + (_MEDIUM_STEP if has_answer else -_MEDIUM_STEP)) / first
    return [candidate._replace(likelihood=(candidate.likelihood or 0.0) * factor) for candidate in candidates]


def rate_hits(mode: SearchMode, candidates: Sequence[Candidate]) -> list[HitRating]:
    """Rate candidates with likelihoods."""
    scores = [round(candidate.likelihood or 0.0, 4) for candidate in candidates]
    return [HitRating(score, get_confidence(mode, score)) for score in scores]


def get_confidence(mode: SearchMode, score: float) -> Confidence:
    """The confidence level of a score."""
    if score >= HIGH_SCORE:
        return Confidence.HIGH
    return Confidence.MEDIUM if score >= MEDIUM_SCORES[mode] else Confidence.LOW


def apply_curve(curve: ScoreCurve, features: ScoreFeatures) -> float:
    """The height of a curve, between 0 and 1."""
    bias, evidence, meaning, word_margin, lead, smallness = curve
    total = (
        evidence * features.evidence
        + meaning * features.meaning
        + word_margin * features.word_margin
        + lead * features.lead
        + smallness * features.smallness
    )
    return 0.5 * (1 + math.tanh((total - bias) / 2))
