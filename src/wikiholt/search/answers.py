"""Answers a question with sentences of the pages that a search has found, or says that the wiki does not.

The sentences are taken from the best passages. A weighted sum of a few features orders them, and a logistic function
of the best sum and the score of the best page tells how likely the chosen ones contain the answer. The weights are
fitted by `bench.ask`; see docs/adr/0050-answers-in-sentences-of-the-pages.md.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple
from urllib.parse import quote

from wikiholt.domain.answer import Answer, AnswerSentence
from wikiholt.domain.index import CosineScale
from wikiholt.domain.search import Hit, SearchResult
from wikiholt.search.explanations import explain_sentence
from wikiholt.search.hits import find_mentions, get_stems
from wikiholt.search.ranking import compute_logistic
from wikiholt.text.dialect import Dialect
from wikiholt.text.display_text import SEPARATOR
from wikiholt.text.keyword_query import get_significant_tokens, get_stop_terms, parse_query
from wikiholt.text.page_names import is_code
from wikiholt.text.sentence_lines import find_lines
from wikiholt.text.snippets import SentenceScorer, split_sentences

MAX_WORDS, MAX_SENTENCES = 80, 6
PASSAGES = 6
"""Passages whose sentences compete."""
PASSAGES_PER_PAGE = 3
CLOSEST_PAGES = 3
ANSWER_PROBABILITY = 0.3
"""The least probability with which sentences are shown."""

MAX_RANK_LOSS = 5.0
"""A sentence whose rank is lower than the best by more is not shown. Such a one alone hardly ever has the answer."""
_FULL_WORDS = 75
"""With this number of words, no further sentence is looked for."""
_FRAGMENT_WORDS = 4
"""Words at each end of a sentence that a link names."""
_ASKS_FOR_NUMBER = re.compile(
    r"\b(?:how (?:many|much|long|often|old|far|big|large|fast|high|soon|late)|when|what (?:time|year|date|day|port"
    r"|number|percentage|size|version)|which (?:year|port|version|day)|limit|maximum|minimum|deadline|cost|price"
    r"|percent\w*)\b",
    re.IGNORECASE,
)
_REFERS_BACK = re.compile(
    r"\A\W*(?:and|or|but|what about|how about)\b|\b(?:it|its|they|them|their|those|these|that|this|there|one)\b",
    re.IGNORECASE,
)


class SentenceFeatures(NamedTuple):
    """The features of a sentence that tell whether it answers, or a weight for each."""

    sentence: float = 0.0
    """How close its words are to those of the question."""
    passage: float = 0.0
    """How near its passage is."""
    page: float = 0.0
    """The score of its page."""
    words: float = 0.0
    """The share of the words of the question that the passage contains."""
    number: float = 0.0
    """1 if the question asks for a number and the sentence has one."""
    short: float = 0.0
    """1 if it has fewer than SHORT_WORDS words."""


SHORT_WORDS = 6
SENTENCE_WEIGHTS = SentenceFeatures(3.06, 18.1, 0.99, 0.94, 1.42, -1.23)


class ProbabilityFeatures(NamedTuple):
    """The features of the chosen sentences that tell whether they answer, or a weight for each."""

    best: float = 0.0
    """The weighted sum of the best sentence."""
    page: float = 0.0
    """The score of the best page."""


PROBABILITY_WEIGHTS = ProbabilityFeatures(0.406, 1.522)
PROBABILITY_BIAS = 5.85
"""What is subtracted from the weighted sum."""


@dataclass(frozen=True, slots=True)
class SentenceJudge:
    """What is known about a question and its wiki before sentences are read."""

    question: str
    language: str
    dialect: Dialect
    scale: CosineScale
    score: SentenceScorer | None
    """How close sentences are to the question; None without a model."""


class RatedSentence(NamedTuple):
    """A sentence of a hit's passage."""

    text: str
    hit: int
    place: int
    """Its place in the passage."""
    features: SentenceFeatures

    @property
    def contributions(self) -> list[tuple[str, float]]:
        """The features by name, each times its weight."""
        pairs = zip(SENTENCE_WEIGHTS, self.features, strict=True)
        return list(zip(self.features._fields, (weight * value for weight, value in pairs), strict=True))

    @property
    def rank(self) -> float:
        return sum(value for _, value in self.contributions)


def resolve_follow_up(question: str, previous: str, language: str) -> str:
    """The question to search for: with the words of the previous one if it has none of its own or refers back."""
    if not previous.strip():
        return question
    own = frozenset(parse_query(question, language).terms) - get_stop_terms(language)
    if own and not _REFERS_BACK.search(question):
        return question
    words = get_significant_tokens(previous, parse_query(previous, language), language)
    return " ".join([*(word for word in words if word.casefold() not in question.casefold()), question])


def build_answer(result: SearchResult, judge: SentenceJudge) -> Answer:
    """The sentences of the hits that answer, if they are likely enough to."""
    rated = rate_sentences(result.hits[:PASSAGES], judge)
    chosen = choose_sentences(rated)
    probability = compute_probability(result, chosen)
    answered = bool(chosen) and probability >= ANSWER_PROBABILITY and result.meaning_ready == 1
    ordered = _order_sentences(chosen, result.hits) if answered else []
    pages: dict[str, Hit] = {}
    for hit in result.hits:
        pages.setdefault(hit.path, hit)
    return Answer(
        result.query,
        answered,
        round(probability, 4),
        tuple(_build_sentence(result.hits[each.hit], each) for each in ordered),
        tuple(islice(pages.values(), CLOSEST_PAGES)),
        result,
    )


def rate_sentences(hits: Sequence[Hit], judge: SentenceJudge) -> list[RatedSentence]:
    """The different sentences of the passages of the hits, with their features."""
    texts = [split_sentences(hit.text, judge.dialect) for hit in hits]
    flat = list(chain.from_iterable(texts))
    closeness = iter(judge.score(flat) if judge.score is not None and flat else [0.0] * len(flat))
    query = parse_query(judge.question, judge.language)
    stop_terms = get_stop_terms(judge.language)
    stems = [stem for stem in get_stems(query) if stem not in stop_terms]
    wants_number = _ASKS_FOR_NUMBER.search(judge.question) is not None
    rated: dict[str, RatedSentence] = {}
    for number, (hit, sentences) in enumerate(zip(hits, texts, strict=True)):
        near = 0.0 if hit.distance is None else judge.scale.normalize(1.0 - hit.distance)
        share = len(find_mentions(hit.text, stems)) / max(len(stems), 1)
        for place, text in enumerate(sentences):
            has_number = wants_number and any(map(str.isdigit, text))
            is_short = len(text.split()) < SHORT_WORDS
            features = SentenceFeatures(next(closeness), near, hit.score, share, float(has_number), float(is_short))
            rated.setdefault(" ".join(text.casefold().split()), RatedSentence(text, number, place, features))
    return list(rated.values())


def choose_sentences(rated: Sequence[RatedSentence]) -> list[RatedSentence]:
    """At most MAX_SENTENCES of the best, with at most MAX_WORDS together, best first; a longer one is cut."""
    chosen: list[RatedSentence] = []
    left = MAX_WORDS
    for each in sorted(rated, key=lambda each: each.rank, reverse=True):
        if chosen and each.rank < chosen[0].rank - MAX_RANK_LOSS:
            break
        words = each.text.split()
        if len(words) > left and chosen:
            continue
        if any(each.text in other.text for other in chosen):
            continue
        chosen.append(each if len(words) <= left else each._replace(text=" ".join(words[:left]) + " …"))
        left -= len(words)
        if left <= MAX_WORDS - _FULL_WORDS or len(chosen) == MAX_SENTENCES:
            break
    return chosen


def compute_probability(result: SearchResult, chosen: Sequence[RatedSentence]) -> float:
    """How likely the chosen sentences contain the answer."""
    if not chosen:
        return 0.0
    features = get_probability_features(result, chosen)
    total = sum(weight * value for weight, value in zip(PROBABILITY_WEIGHTS, features, strict=True))
    return compute_logistic(total - PROBABILITY_BIAS)


def get_probability_features(result: SearchResult, chosen: Sequence[RatedSentence]) -> ProbabilityFeatures:
    """The features of chosen sentences, best first."""
    return ProbabilityFeatures(chosen[0].rank, result.hits[0].score)


def _order_sentences(chosen: Sequence[RatedSentence], hits: Sequence[Hit]) -> list[RatedSentence]:
    """Page by page, the best page first, and each page from its top."""
    pages: dict[str, int] = {}
    for each in chosen:
        pages.setdefault(hits[each.hit].path, len(pages))
    return sorted(chosen, key=lambda each: (pages[hits[each.hit].path], hits[each.hit].chunk_index, each.place))


def _build_sentence(hit: Hit, rated: RatedSentence) -> AnswerSentence:
    text = rated.text
    first, last = find_lines(hit.text, text)
    if is_code(hit.file):  # the passage has lines that the file does not have
        first, last = 0, hit.last_line - hit.first_line
    return AnswerSentence(
        text,
        hit.name,
        hit.path,
        hit.file,
        format_sentence_link(hit.url, text),
        hit.heading_path,
        hit.anchor,
        hit.first_line + first,
        hit.first_line + last,
        explain_sentence(rated) if hit.explanation else "",
    )


def format_sentence_link(url: str, text: str) -> str:
    """The link to a sentence: browsers scroll to the words that its fragment names."""
    if SEPARATOR in text:  # cells and blocks are not one text on the page
        return url
    words = text.removesuffix(" …").split()
    ends = (words[:_FRAGMENT_WORDS], words[-_FRAGMENT_WORDS:]) if len(words) > 2 * _FRAGMENT_WORDS else (words,)
    fragment = ",".join(quote(" ".join(end), safe="").replace("-", "%2D") for end in ends)
    return f"{url}{'' if '#' in url else '#'}:~:text={fragment}"
