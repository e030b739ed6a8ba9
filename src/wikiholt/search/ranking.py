"""Merges pages found by meaning and by keyword into one ranked list. Pure functions; the order does not depend on n.

A page's rank is a weighted sum of its features: how near its nearest chunk and the page as a whole are to the query,
its share of the best possible keyword score, and how well its title matches. Names and sentences have different
weights. A hit's score is the probability that it is the page wanted: the probability that the wiki has an answer, times
the page's share among the best pages. docs/adr/0049 says how the weights are fitted.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import mul
from typing import NamedTuple

from wikiholt.domain.index import CosineScale, VectorHits
from wikiholt.domain.search import Confidence, SearchMode

LONG_QUERY_WORDS = 12
"""A query with this many words, or more, has the length 1."""

MIN_CODE_CHARS = 4

COMPETING_PAGES = 24
"""The best pages, among which the probability is shared."""

COMPARED_MEANINGS, COMPARED_SHARES = 10, 5
"""Pages with whose mean the best one is compared, to know whether it stands out."""

ANSWER_PROBABILITY = 0.3
"""If it is less likely that the wiki has an answer, nothing is relevant."""

HIGH_SCORE = 0.74
"""Scores from here on are rated high: about nine in ten such first hits are right."""

MEDIUM_SHARE = 0.2
"""A hit is medium only from this share of the score of the first one."""

LOGIT_WEIGHT = 0.35
"""How much a logit of a reranker that read the passage adds to the rank."""

_DEFAULT_SCALE = CosineScale()
_HYBRID, _SEMANTIC, _KEYWORD = SearchMode.HYBRID, SearchMode.SEMANTIC, SearchMode.KEYWORD
"""Reading a member of an enumeration takes longer than the rest of a comparison."""


class QueryShape(NamedTuple):
    """What kind of text a query is. A sentence has many function words; names and codes have none."""

    function_words: float = 0.0
    """The share of function words."""
    length: float = 0.0
    """The number of other words, up to 1."""
    brevity: float = 0.0
    """1 divided by that number: 1 for a single word."""
    code: float = 0.0
    """1 if it has a code: a word of letters and digits."""


def make_query_shape(terms: Collection[str], word_count: int) -> QueryShape:
    """The shape of a query with these significant terms, and this number of words."""
    count = len(terms)
    function_words = 1 - min(1.0, count / word_count) if word_count else 0.0
    has_code = any(map(_is_code, terms))
    return QueryShape(function_words, min(1.0, count / LONG_QUERY_WORDS), 1 / max(count, 1), float(has_code))


def _is_code(term: str) -> bool:
    return len(term) >= MIN_CODE_CHARS and any(map(str.isdigit, term)) and any(map(str.isalpha, term))


class RankFeatures(NamedTuple):
    """The features of a page that decide its rank, or a weight for each."""

    chunk: float = 0.0
    """How near its nearest chunk is."""
    page: float = 0.0
    """How near the page as a whole is."""
    words: float = 0.0
    """Its share of the best possible keyword score."""
    title: float = 0.0
    """The overlap of title and query."""
    title_meaning: float = 0.0
    """The overlap times the nearness of chunk and page."""
    title_share: float = 0.0
    """The share of the title that is in the query."""
    size: float = 0.0
    """The logarithm of its number of chunks: one of many is near by chance."""


RANK_WEIGHTS = {
    _HYBRID: RankFeatures(13.94, 6.59, 3.33, -0.66, -1.58, 4.44, 0.08),
    _SEMANTIC: RankFeatures(19.67, 12.23),
    _KEYWORD: RankFeatures(words=6.44, title=2.78, title_share=3.61, size=0.22),
}
"""The weights for a query without function words."""

SENTENCE_WEIGHTS = {
    _HYBRID: RankFeatures(12.00, -3.34, -4.64, -11.95, 24.12, -3.05, -0.91),
    _SEMANTIC: RankFeatures(5.31, -6.40),
    _KEYWORD: RankFeatures(words=-4.89, title=0.26, title_share=-0.97, size=-0.99),
}
"""What is added to the weights times the share of function words."""

WORD_WEIGHTS = {_HYBRID: (6.37, 2.60, 8.0), _SEMANTIC: (0.0, 0.0, 0.0), _KEYWORD: (9.26, 0.0, 0.0)}
"""What is added to the weight of words times length, brevity and code of the query: the same share of many words is
more evidence, a single word is often a name, and a code is meant as it is written."""


class AnswerFeatures(NamedTuple):
    """The features that tell whether the wiki has an answer, or a weight for each. `first` is the first page."""

    best_chunk: float = 0.0
    first_page: float = 0.0
    first_words: float = 0.0
    best_words: float = 0.0
    first_title: float = 0.0
    chunk_lead: float = 0.0
    """How much nearer the nearest chunk is than those of the nearest pages on average."""
    words_lead: float = 0.0
    """The best share of words minus the mean of the next pages."""
    function_words: float = 0.0
    length: float = 0.0
    chunk_in_sentence: float = 0.0
    """The nearest chunk times the share of function words."""
    words_in_sentence: float = 0.0
    """The words of the first page times the share of function words."""


ANSWER_WEIGHTS = {
    _HYBRID: AnswerFeatures(13.77, 2.10, 2.54, 2.02, -2.36, 2.45, -0.41, 1.18, 4.36, 5.40, -1.98),
    _SEMANTIC: AnswerFeatures(17.38, 0.27, chunk_lead=4.75, function_words=0.93, length=3.31, chunk_in_sentence=3.42),
    _KEYWORD: AnswerFeatures(0, 0, 3.25, 4.42, 2.30, 0, -1.84, 2.90, 4.43, 0, -3.01),
}
ANSWER_BIASES = {_HYBRID: 9.96, _SEMANTIC: 8.95, _KEYWORD: 4.75}
"""What is subtracted from the weighted sum."""


class TitleMatch(NamedTuple):
    """How a query matches the names of a page, and the number of its chunks."""

    overlap: float = 0.0
    share: float = 0.0
    """The share of the title that is in the query."""
    chunks: int = 1

    def add(self, overlap: float, share: float) -> "TitleMatch":
        """The better of this match and that of another name."""
        return TitleMatch(max(self.overlap, overlap), max(self.share, share), self.chunks)


_NO_TITLE_MATCH = TitleMatch()


class Candidate(NamedTuple):
    """A page that may become a hit: its nearest chunk, its keyword share, and how its title matches.

    A tuple and not a dataclass, because every search makes hundreds.
    """

    page_id: int
    chunk_id: int | None = None
    distance: float | None = None
    keyword_share: float | None = None
    channels: tuple[str, ...] = ()
    title: TitleMatch = _NO_TITLE_MATCH
    scale: CosineScale = _DEFAULT_SCALE
    """How to interpret the distance; depends on the model."""
    page_cosine: float | None = None
    """The cosine of the page as a whole. None means that of the chunk."""
    rank: float = 0.0
    """The weighted sum of its features, and of the reranker's logits if it was read."""
    likelihood: float | None = None
    """How likely this is the page wanted. None until computed."""
    confidence: Confidence = Confidence.LOW

    def with_share(self, share: float, channels: tuple[str, ...]) -> "Candidate":
        """The candidate as found by keyword. Faster than `_replace`."""
        page_id, chunk_id, distance, _, _, title, scale, *_ = self
        return Candidate(page_id, chunk_id, distance, share, channels, title, scale)

    @property
    def chunk_meaning(self) -> float:
        """How near its nearest chunk is, on the common scale of all models."""
        return 0.0 if self.distance is None else self.scale.normalize(1.0 - self.distance)

    @property
    def page_meaning(self) -> float:
        """How near the page as a whole is, on the common scale of all models."""
        return self.chunk_meaning if self.page_cosine is None else self.scale.normalize(self.page_cosine)

    def get_features(self) -> RankFeatures:
        chunk, page = self.chunk_meaning, self.page_meaning
        overlap, share, chunks = self.title
        meaning = 0.6 * chunk + 0.4 * page
        size = math.log(max(chunks, 1))
        return RankFeatures(chunk, page, self.keyword_share or 0.0, overlap, overlap * meaning, share, size)


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
            found.append(Candidate(page_id, chunk_id, distance, None, channels, _NO_TITLE_MATCH, scale))
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
    candidates: Sequence[Candidate], page_cosines: Mapping[int, float], titles: Mapping[int, TitleMatch]
) -> list[Candidate]:
    """The candidates with the cosines and the title matches of their pages. Faster than `_replace`."""
    found = []
    for page_id, chunk_id, distance, share, channels, _, scale, *_ in candidates:
        cosine = page_cosines.get(page_id) if distance is not None else None
        title = titles.get(page_id, _NO_TITLE_MATCH)
        found.append(Candidate(page_id, chunk_id, distance, share, channels, title, scale, cosine))
    return found


def rank_candidates(mode: SearchMode, candidates: Sequence[Candidate], shape: QueryShape) -> list[Candidate]:
    """The candidates with their ranks, best first. Ties go to the nearer page, then to the lower id."""
    sentence, *of_words = shape
    weights = [plain + sentence * more for plain, more in zip(RANK_WEIGHTS[mode], SENTENCE_WEIGHTS[mode], strict=True)]
    weights[RankFeatures._fields.index("words")] += _weigh(WORD_WEIGHTS[mode], of_words)
    ranked = [candidate._replace(rank=_weigh(weights, candidate.get_features())) for candidate in candidates]
    order = [
        (-candidate.rank, math.inf if candidate.distance is None else candidate.distance, candidate.page_id, number)
        for number, candidate in enumerate(ranked)
    ]
    return [ranked[number] for *_, number in sorted(order)]


def _weigh(weights: Iterable[float], features: Iterable[float]) -> float:
    total: float = sum(map(mul, weights, features))
    return total


class Verdict(NamedTuple):
    """Whether the wiki has an answer, judged by ranked candidates. Their depth must not depend on n."""

    answer: float = 0.0
    """How likely it has one."""
    total: float = 0.0
    """The sum of the best pages' exponentials of their ranks relative to the first one."""
    first_rank: float = 0.0


def judge_answer(mode: SearchMode, ranked: Sequence[Candidate], shape: QueryShape) -> Verdict:
    """Judge whether the best of these candidates, of which a page may have several, answer the query."""
    if not ranked:
        return Verdict()
    pages: dict[int, Candidate] = {}
    for candidate in ranked:
        pages.setdefault(candidate.page_id, candidate)
    features = _get_answer_features(ranked[0], list(pages.values()), shape)
    total = _weigh(ANSWER_WEIGHTS[mode], features) - ANSWER_BIASES[mode]
    first_rank = ranked[0].rank
    best = [math.exp(page.rank - first_rank) for page in list(pages.values())[:COMPETING_PAGES]]
    return Verdict(compute_logistic(total), sum(best), first_rank)


def _get_answer_features(first: Candidate, pages: Sequence[Candidate], shape: QueryShape) -> AnswerFeatures:
    meanings = sorted((page.chunk_meaning for page in pages), reverse=True)[:COMPARED_MEANINGS]
    shares = sorted((page.keyword_share or 0.0 for page in pages), reverse=True)[: COMPARED_SHARES + 1]
    sentence, words = shape.function_words, first.keyword_share or 0.0
    return AnswerFeatures(
        meanings[0],
        first.page_meaning,
        words,
        shares[0],
        first.title.overlap,
        meanings[0] - sum(meanings) / len(meanings),
        shares[0] - sum(shares[1:]) / COMPARED_SHARES,
        sentence,
        shape.length,
        meanings[0] * sentence,
        words * sentence,
    )


def compute_logistic(value: float) -> float:
    """The logistic function, for any value."""
    return 0.5 * (1 + math.tanh(value / 2))


def with_likelihoods(candidates: Sequence[Candidate], verdict: Verdict) -> list[Candidate]:
    """The same candidates with likelihoods. A likelihood that is already set is kept."""
    factor = verdict.answer / max(verdict.total, 1.0)
    return [
        candidate._replace(likelihood=factor * math.exp(min(candidate.rank - verdict.first_rank, 0.0)))
        if candidate.likelihood is None
        else candidate
        for candidate in candidates
    ]


def rate_candidates(candidates: Sequence[Candidate], verdict: Verdict) -> list[Candidate]:
    """The same candidates with their confidence; no likelihood exceeds the one before it, so that scores follow the
    order. The first one is at least medium if the wiki probably has an answer."""
    lowest, rated = 1.0, []
    first = (candidates[0].likelihood or 0.0) if candidates else 0.0
    has_answer = max(verdict.answer, first) >= ANSWER_PROBABILITY
    for candidate in candidates:
        lowest = min(lowest, candidate.likelihood or 0.0)
        confidence = rate_score(lowest, is_medium=has_answer and lowest >= MEDIUM_SHARE * first)
        rated.append(candidate._replace(likelihood=lowest, confidence=confidence))
    return rated


def rate_score(score: float, *, is_medium: bool) -> Confidence:
    """The confidence of a score; `is_medium` if the wiki has an answer that may be this page."""
    if score >= HIGH_SCORE:
        return Confidence.HIGH
    return Confidence.MEDIUM if is_medium else Confidence.LOW
