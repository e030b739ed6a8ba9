"""Merges pages found by meaning and by keyword into one ranked list. Pure functions; the order does not depend on n.

A page's rank is a weighted sum of its features: how near its nearest chunk and the page as a whole are to the query,
its share of the best possible keyword score, and how well its title matches. Names and sentences have different
weights. A hit's score is the probability that it is the page wanted: the probability that the wiki has an answer, times
the page's share among the best pages. docs/adr/0049 says how the weights are fitted.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wikiholt.domain.index import CosineScale, IntArray
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

NAME_CHANNEL = "name"
NAME_LIKELIHOOD, MIN_NAME_LIKELIHOOD = 0.95, 0.3
"""The likelihood of a page whose own name is the query, which pages of the same name share, and the least of each: it
is medium."""

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


DoubleArray = NDArray[np.float64]
Candidates = NDArray[np.void]
"""Pages that may become hits, or passages of them, one in each row; see `make_candidates`."""

_COLUMNS = np.dtype(
    [
        ("page_id", np.int64),
        ("chunk_id", np.int64),
        ("distance", np.float64),
        ("share", np.float64),
        ("is_near", np.bool_),
        ("page_cosine", np.float64),
        ("overlap", np.float64),
        ("title_share", np.float64),
        ("chunks", np.int64),
        ("rank", np.float64),
        ("likelihood", np.float64),
        ("is_named", np.bool_),
    ],
    align=True,
)


def make_candidates(page_ids: IntArray | Sequence[int], **columns: Any) -> Candidates:
    """Candidates with these columns. Of the others, `chunk_id` and `distance` (infinite) mean that there is no passage,
    and what is not a number is unknown.

    `distance` is that of the nearest chunk, `share` that of the best possible keyword score, and `is_near` whether the
    row was found by meaning. If the cosine of the page as a whole is unknown, that of the chunk counts.
    `overlap`, `title_share` and `chunks` are those of a `TitleMatch`. `rank` is the weighted sum of the features, and
    of the reranker's logits if it read the page; `likelihood` how likely this is the page wanted. `is_named` tells that
    the query is the page's own name.
    """
    candidates = np.zeros(len(page_ids), _COLUMNS)
    candidates["distance"] = np.inf
    candidates["chunks"] = 1
    for name in ("share", "page_cosine", "likelihood"):
        candidates[name] = np.nan
    candidates["page_id"] = page_ids
    for name, values in columns.items():
        candidates[name] = values
    return candidates


def with_page_evidence(
    candidates: Candidates, page_cosines: DoubleArray | None, titles: Sequence[TitleMatch] | None
) -> Candidates:
    """The candidates with the cosine of the page as a whole and the title match of each row, as far as given."""
    found = candidates.copy()
    if page_cosines is not None:
        found["page_cosine"] = np.where(np.isinf(found["distance"]), np.nan, page_cosines)
    if titles:
        values = np.fromiter(chain.from_iterable(titles), np.float64, 3 * len(titles)).reshape(-1, 3)
        found["overlap"], found["title_share"], found["chunks"] = values.T
    return found


def select_first(page_ids: IntArray, per_page: int = 1, wanted: Collection[int] | None = None) -> list[int]:
    """The positions of the first `per_page` rows of each page, in their order; only of the `wanted` pages if given."""
    # A loop over a few hundred rows takes less time than the calls of numpy that would replace it.
    left = {} if wanted is None else dict.fromkeys(wanted, per_page)
    of_others, missing = (per_page, -1) if wanted is None else (0, per_page * len(left))
    rows: list[int] = []
    for row, page_id in enumerate(page_ids.tolist()):
        count = left.get(page_id, of_others)
        if count:
            left[page_id] = count - 1
            rows.append(row)
            if len(rows) == missing:
                break
    return rows


def normalize_cosines(scale: CosineScale, cosines: DoubleArray) -> DoubleArray:
    """`CosineScale.normalize` of each."""
    return np.maximum(0.0, (cosines - scale.unrelated) / (scale.related - scale.unrelated))


def compute_features(candidates: Candidates, scale: CosineScale) -> list[DoubleArray]:
    """The `RankFeatures` of the candidates, a column of each."""
    chunk = normalize_cosines(scale, 1.0 - candidates["distance"])
    cosines = candidates["page_cosine"]
    page = np.where(np.isnan(cosines), chunk, normalize_cosines(scale, cosines))
    overlap = candidates["overlap"]
    sizes = np.log(np.maximum(candidates["chunks"], 1))
    meaning = 0.6 * chunk + 0.4 * page
    return [chunk, page, get_shares(candidates), overlap, overlap * meaning, candidates["title_share"], sizes]


def get_shares(candidates: Candidates) -> DoubleArray:
    """The keyword shares, 0 for a page that was not found by keyword."""
    shares: DoubleArray = np.nan_to_num(candidates["share"])
    return shares


def rank_candidates(mode: SearchMode, candidates: Candidates, shape: QueryShape, scale: CosineScale) -> Candidates:
    """The candidates with their ranks, best first. Ties go to the nearer page, then to the lower id."""
    sentence, *of_words = shape
    weights = [plain + sentence * more for plain, more in zip(RANK_WEIGHTS[mode], SENTENCE_WEIGHTS[mode], strict=True)]
    weights[RankFeatures._fields.index("words")] += _weigh(WORD_WEIGHTS[mode], of_words)
    ranks = _weigh(weights, compute_features(candidates, scale))
    order = np.lexsort((candidates["page_id"], candidates["distance"], -ranks))
    ranked = candidates[order]
    ranked["rank"] = ranks[order]
    return ranked


def _weigh(weights: Iterable[float], features: Iterable[Any]) -> Any:
    return sum(map(mul, weights, features))


class Verdict(NamedTuple):
    """Whether the wiki has an answer, judged by ranked candidates. Their depth must not depend on n."""

    answer: float = 0.0
    """How likely it has one."""
    total: float = 0.0
    """The sum of the best pages' exponentials of their ranks relative to the first one."""
    first_rank: float = 0.0


def judge_answer(mode: SearchMode, ranked: Candidates, shape: QueryShape, scale: CosineScale) -> Verdict:
    """Judge whether the best of these candidates, of which a page may have several, answer the query."""
    if not len(ranked):
        return Verdict()
    pages = ranked[select_first(ranked["page_id"])]
    features = _get_answer_features(pages, shape, scale)
    total = _weigh(ANSWER_WEIGHTS[mode], features) - ANSWER_BIASES[mode]
    ranks = pages["rank"][:COMPETING_PAGES]
    return Verdict(compute_logistic(total), float(np.exp(ranks - ranks[0]).sum()), float(ranks[0]))


def _get_answer_features(pages: Candidates, shape: QueryShape, scale: CosineScale) -> AnswerFeatures:
    chunk, page, words, title, *_ = compute_features(pages, scale)
    meanings = np.sort(chunk)[::-1][:COMPARED_MEANINGS].tolist()
    shares = np.sort(words)[::-1][: COMPARED_SHARES + 1].tolist()
    sentence, first_words = shape.function_words, float(words[0])
    return AnswerFeatures(
        meanings[0],
        float(page[0]),
        first_words,
        shares[0],
        float(title[0]),
        meanings[0] - sum(meanings) / len(meanings),
        shares[0] - sum(shares[1:]) / COMPARED_SHARES,
        sentence,
        shape.length,
        meanings[0] * sentence,
        first_words * sentence,
    )


def compute_logistic(value: float) -> float:
    """The logistic function, for any value."""
    return 0.5 * (1 + math.tanh(value / 2))


def with_likelihoods(ranked: Candidates, verdict: Verdict) -> Candidates:
    """The same candidates with likelihoods. A likelihood that is already set is kept."""
    factor = verdict.answer / max(verdict.total, 1.0)
    likelihoods = factor * np.exp(np.minimum(ranked["rank"] - verdict.first_rank, 0.0))
    known = ranked["likelihood"]
    likely = ranked.copy()
    likely["likelihood"] = np.where(np.isnan(known), likelihoods, known)
    return likely


def move_named(ranked: Candidates, named: Collection[int]) -> Candidates:
    """The ranked candidates with those of named pages first, in the same order."""
    if not named:
        return ranked
    is_named = np.isin(ranked["page_id"], list(named))
    moved = ranked[np.argsort(~is_named, kind="stable")]
    moved["is_named"][: np.count_nonzero(is_named)] = True
    return moved


def with_name_likelihoods(candidates: Candidates, named: Collection[int]) -> Candidates:
    """The candidates with likelihoods; that of a named page is at least what its name earns."""
    least = max(NAME_LIKELIHOOD / max(len(named), 1), MIN_NAME_LIKELIHOOD)
    likely = candidates.copy()
    likely["likelihood"] = np.where(
        candidates["is_named"], np.maximum(candidates["likelihood"], least), candidates["likelihood"]
    )
    return likely


class Candidate(NamedTuple):
    """A ranked page that becomes a hit, or one of its passages."""

    page_id: int
    chunk_id: int | None = None
    distance: float | None = None
    keyword_share: float | None = None
    channels: tuple[str, ...] = ()
    rank: float = 0.0
    likelihood: float = 0.0
    """How likely this is the page wanted."""
    confidence: Confidence = Confidence.LOW
    boost: float = 1.0
    """The factor on its rank."""


def to_candidates(rows: Candidates) -> list[Candidate]:
    """The rows as values, not yet rated."""
    columns = ("page_id", "chunk_id", "distance", "share", "is_near", "is_named", "rank")
    return [
        Candidate(
            page_id,
            None if math.isinf(distance) else chunk_id,
            None if math.isinf(distance) else distance,
            None if math.isnan(share) else share,
            _name_channels(share, is_near=is_near, is_named=is_named),
            rank,
        )
        for page_id, chunk_id, distance, share, is_near, is_named, rank in zip(
            *(rows[name].tolist() for name in columns), strict=True
        )
    ]


def rate_candidates(rows: Candidates, verdict: Verdict) -> list[Candidate]:
    """The candidates with their likelihood and confidence; no likelihood exceeds the one before it, so that scores
    follow the order. The first one is at least medium if the wiki probably has an answer."""
    likelihoods = compute_falling_likelihoods(rows).tolist()
    first = float(rows["likelihood"][0]) if len(rows) else 0.0
    has_answer = max(verdict.answer, first) >= ANSWER_PROBABILITY
    return [
        candidate._replace(
            likelihood=likelihood,
            confidence=rate_score(likelihood, is_medium=has_answer and likelihood >= MEDIUM_SHARE * first),
        )
        for candidate, likelihood in zip(to_candidates(rows), likelihoods, strict=True)
    ]


def compute_falling_likelihoods(candidates: Candidates) -> DoubleArray:
    """The likelihoods, none of them above the one before it."""
    return np.minimum.accumulate(np.minimum(candidates["likelihood"], 1.0))


def _name_channels(share: float, *, is_near: bool, is_named: bool) -> tuple[str, ...]:
    """The channels that found a page. That of words is not one of a page that has no other word than its name."""
    by_keyword = share > 0 if is_named else not math.isnan(share)
    names = (("semantic", is_near), ("keyword", by_keyword), (NAME_CHANNEL, is_named))
    return tuple([name for name, is_channel in names if is_channel])


def rate_score(score: float, *, is_medium: bool) -> Confidence:
    """The confidence of a score; `is_medium` if the wiki has an answer that may be this page."""
    if score >= HIGH_SCORE:
        return Confidence.HIGH
    return Confidence.MEDIUM if is_medium else Confidence.LOW
