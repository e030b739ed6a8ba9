"""Runs evaluation questions, scores the results, and compares configurations."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from wikiholt.domain.search import SearchMode, SearchResult
from wikiholt.search.request import MAX_HITS, SearchRequest
from wikiholt.wikis.evaluation.quality_metrics import (
    METRICS,
    RANKING_DEPTH,
    ConfidenceInterval,
    MetricDifference,
    compute_difference,
    compute_interval,
)
from wikiholt.wikis.evaluation.questions import Question, QuestionKind

SearchFunction = Callable[[Question, SearchRequest], SearchResult]
MIN_QUESTIONS = 30
"""With fewer questions, metrics say little."""


@dataclass(frozen=True, slots=True)
class ReturnedPage:
    """A page returned for a question."""

    path: str
    name: str
    score: float


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """A question, the first returned pages without excluded ones, and its metrics."""

    question: Question
    returned: tuple[ReturnedPage, ...]
    metrics: Mapping[str, float]
    took_ms: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """The outcomes of all questions for one configuration."""

    label: str
    mode: SearchMode
    outcomes: tuple[QuestionOutcome, ...]

    def compute_metrics(self, kind: QuestionKind | None = None, seed: int = 0) -> dict[str, ConfidenceInterval]:
        """The mean of each metric over the questions of one kind, or over all."""
        outcomes = [outcome for outcome in self.outcomes if kind in (None, outcome.question.kind)]
        return {metric: compute_interval([outcome.metrics[metric] for outcome in outcomes], seed) for metric in METRICS}

    def count_kinds(self) -> dict[QuestionKind, int]:
        """The number of questions of each kind, in the order of the kinds."""
        counts = {kind: sum(outcome.question.kind is kind for outcome in self.outcomes) for kind in QuestionKind}
        return {kind: count for kind, count in counts.items() if count}

    def get_latency_ms(self) -> tuple[float, float]:
        """The median and the 95th percentile of the search times."""
        times = sorted(outcome.took_ms for outcome in self.outcomes)
        return times[(len(times) - 1) // 2], times[min(len(times) - 1, int(len(times) * 0.95))]

    def find_worst(self, count: int) -> list[QuestionOutcome]:
        """The questions with the worst results, by nDCG and rank, then in their order."""
        ordered = sorted(self.outcomes, key=lambda outcome: (outcome.metrics["ndcg@10"], outcome.metrics["mrr"]))
        return [outcome for outcome in ordered if outcome.metrics["ndcg@10"] < 1.0][:count]

    def count_notes(self) -> dict[str, int]:
        """Notes of the search results, with counts."""
        return dict(Counter(note for outcome in self.outcomes for note in outcome.notes))


def run_evaluation(
    label: str, mode: SearchMode, questions: Sequence[Question], search: SearchFunction
) -> EvaluationRun:
    """Run every question once. Errors of a search are raised."""
    return EvaluationRun(label, mode, tuple(run_question(question, mode, search) for question in questions))


def run_question(question: Question, mode: SearchMode, search: SearchFunction) -> QuestionOutcome:
    """Run one question and score the result."""
    result = search(question, SearchRequest(question.text, n=get_result_limit(question), mode=mode))
    pages = [ReturnedPage(hit.path, hit.name, hit.score) for hit in result.hits]
    return score_ranking(question, pages, result.took_ms, result.notes)


def get_result_limit(question: Question) -> int:
    """How many pages to request, so that enough remain without the excluded ones."""
    return min(MAX_HITS, RANKING_DEPTH + len(question.excluded))


def score_ranking(
    question: Question, returned: Iterable[ReturnedPage], took_ms: float, notes: tuple[str, ...] = ()
) -> QuestionOutcome:
    """Score a ranking for a question."""
    pages = [page for page in returned if page.path not in question.excluded]
    ranking = list(dict.fromkeys(page.path for page in pages))
    metrics = {name: compute(ranking, question.relevant) for name, compute in METRICS.items()}
    return QuestionOutcome(question, tuple(pages[:RANKING_DEPTH]), metrics, took_ms, notes)


def compare_runs(ours: EvaluationRun, theirs: EvaluationRun, seed: int = 0) -> dict[str, MetricDifference]:
    """The difference of each metric between two runs of the same questions."""
    pairs = list(zip(ours.outcomes, theirs.outcomes, strict=True))
    if any(one.question is not other.question for one, other in pairs):
        raise ValueError("the two runs have different questions")
    return {
        metric: compute_difference(
            [one.metrics[metric] for one, _ in pairs], [other.metrics[metric] for _, other in pairs], seed
        )
        for metric in METRICS
    }


def find_differences(
    ours: EvaluationRun, theirs: EvaluationRun, count: int
) -> list[tuple[QuestionOutcome, QuestionOutcome]]:
    """The questions whose nDCG differs most, from the largest loss to the largest gain of `ours`."""
    pairs = [pair for pair in zip(ours.outcomes, theirs.outcomes, strict=True) if _get_ndcg_gap(*pair)]
    return sorted(
        sorted(pairs, key=lambda pair: -abs(_get_ndcg_gap(*pair)))[:count], key=lambda pair: _get_ndcg_gap(*pair)
    )


def _get_ndcg_gap(one: QuestionOutcome, other: QuestionOutcome) -> float:
    return one.metrics["ndcg@10"] - other.metrics["ndcg@10"]


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two configurations with the same questions: their differences, and the questions that differ most."""

    ours: EvaluationRun
    theirs: EvaluationRun
    differences: Mapping[str, MetricDifference]
    examples: tuple[tuple[QuestionOutcome, QuestionOutcome], ...]

    @classmethod
    def from_runs(cls, ours: EvaluationRun, theirs: EvaluationRun, seed: int, examples: int) -> "RunComparison":
        return cls(ours, theirs, compare_runs(ours, theirs, seed), tuple(find_differences(ours, theirs, examples)))


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The evaluation of one wiki's search at one revision of its index."""

    wiki: str
    revision: str | None
    seed: int
    available: Mapping[QuestionKind, int]
    runs: tuple[EvaluationRun, ...]
    comparison: RunComparison | None = None
    worst_count: int = 5

    def list_runs(self) -> tuple[EvaluationRun, ...]:
        """The runs, and the one they are compared with unless it is among them."""
        theirs = self.comparison.theirs if self.comparison else None
        return self.runs if theirs is None or any(theirs is run for run in self.runs) else (*self.runs, theirs)

    def list_notes(self) -> tuple[str, ...]:
        """Notes for the reader of the report."""
        count = len(self.runs[0].outcomes)
        few = [f"only {count} questions: the metrics may say little"] if count < MIN_QUESTIONS else []
        notes = (
            f"{run.label}: {note}" + (f" ({times} of {count} answers)" if times < count else "")
            for run in self.list_runs()
            for note, times in run.count_notes().items()
        )
        return (*few, *notes)
