"""Asks questions and judges the answers."""

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
ALL_KINDS = "all"


@dataclass(frozen=True, slots=True)
class ReturnedPage:
    """A page that was returned for a question."""

    path: str
    name: str
    score: float


@dataclass(frozen=True, slots=True)
class QuestionOutcome:
    """A question, the first pages returned for it without those it excludes, and how good that is by each metric."""

    question: Question
    returned: tuple[ReturnedPage, ...]
    metrics: Mapping[str, float]
    took_ms: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """One configuration, asked everything."""

    label: str
    mode: SearchMode
    outcomes: tuple[QuestionOutcome, ...]

    def compute_metrics(self, kind: QuestionKind | None = None, seed: int = 0) -> dict[str, ConfidenceInterval]:
        """The mean of each metric over the questions of a kind, or over all."""
        chosen = [each for each in self.outcomes if kind in (None, each.question.kind)]
        return {metric: compute_interval([each.metrics[metric] for each in chosen], seed) for metric in METRICS}

    def count_kinds(self) -> dict[QuestionKind, int]:
        """How many questions of each kind there are, in the order of the kinds."""
        counts = {kind: sum(each.question.kind is kind for each in self.outcomes) for kind in QuestionKind}
        return {kind: count for kind, count in counts.items() if count}

    def get_latency_ms(self) -> tuple[float, float]:
        """The time that half, and that 95 in a hundred of the answers took at most."""
        times = sorted(each.took_ms for each in self.outcomes)
        return times[(len(times) - 1) // 2], times[min(len(times) - 1, int(len(times) * 0.95))]

    def find_worst(self, count: int) -> list[QuestionOutcome]:
        """The questions answered worst: by the rank of what was wanted, then as they were asked."""
        ordered = sorted(self.outcomes, key=lambda each: (each.metrics["ndcg@10"], each.metrics["mrr"]))
        return [each for each in ordered if each.metrics["ndcg@10"] < 1.0][:count]

    def count_notes(self) -> dict[str, int]:
        """What answers said of how they came about, and how many said so."""
        return dict(Counter(note for each in self.outcomes for note in each.notes))


def run_evaluation(
    label: str, mode: SearchMode, questions: Sequence[Question], search: SearchFunction
) -> EvaluationRun:
    """Ask every question once; whatever a search raises is raised."""
    return EvaluationRun(label, mode, tuple(run_question(question, mode, search) for question in questions))


def run_question(question: Question, mode: SearchMode, search: SearchFunction) -> QuestionOutcome:
    """Ask one question and judge what is returned."""
    answer = search(question, SearchRequest(question.text, n=get_result_limit(question), mode=mode))
    found = [ReturnedPage(hit.path, hit.name, hit.score) for hit in answer.hits]
    return score_ranking(question, found, answer.took_ms, answer.notes)


def get_result_limit(question: Question) -> int:
    """How many pages must be asked for, so that enough are left when the excluded ones are taken out."""
    return min(MAX_HITS, RANKING_DEPTH + len(question.excluded))


def score_ranking(
    question: Question, returned: Iterable[ReturnedPage], took_ms: float, notes: tuple[str, ...] = ()
) -> QuestionOutcome:
    """How good a ranking is for a question, whoever made it."""
    found = [each for each in returned if each.path not in question.excluded]
    ranking = list(dict.fromkeys(each.path for each in found))
    figures = {name: metric(ranking, question.relevant) for name, metric in METRICS.items()}
    return QuestionOutcome(question, tuple(found[:RANKING_DEPTH]), figures, took_ms, notes)


def compare_runs(ours: EvaluationRun, theirs: EvaluationRun, seed: int = 0) -> dict[str, MetricDifference]:
    """How the first differs from the second by each metric; both were asked the same questions."""
    pairs = list(zip(ours.outcomes, theirs.outcomes, strict=True))
    if any(one.question is not other.question for one, other in pairs):
        raise ValueError("the two were not asked the same questions")
    return {
        metric: compute_difference(
            [one.metrics[metric] for one, _ in pairs], [other.metrics[metric] for _, other in pairs], seed
        )
        for metric in METRICS
    }


def find_differences(
    ours: EvaluationRun, theirs: EvaluationRun, count: int
) -> list[tuple[QuestionOutcome, QuestionOutcome]]:
    """The questions on which the two differ most by nDCG, the largest loss of the first before its largest gain."""
    pairs = [pair for pair in zip(ours.outcomes, theirs.outcomes, strict=True) if _get_ndcg_gap(*pair)]
    return sorted(
        sorted(pairs, key=lambda pair: -abs(_get_ndcg_gap(*pair)))[:count], key=lambda pair: _get_ndcg_gap(*pair)
    )


def _get_ndcg_gap(one: QuestionOutcome, other: QuestionOutcome) -> float:
    return one.metrics["ndcg@10"] - other.metrics["ndcg@10"]


# What an evaluation found: configurations side by side.


MIN_QUESTIONS = 30
"""Questions below which figures say little."""


@dataclass(frozen=True, slots=True)
class RunComparison:
    """Two configurations, asked the same: by how much the first is better, and where they differ most."""

    ours: EvaluationRun
    theirs: EvaluationRun
    differences: Mapping[str, MetricDifference]
    examples: tuple[tuple[QuestionOutcome, QuestionOutcome], ...]

    @classmethod
    def from_runs(cls, ours: EvaluationRun, theirs: EvaluationRun, seed: int, examples: int) -> "RunComparison":
        return cls(ours, theirs, compare_runs(ours, theirs, seed), tuple(find_differences(ours, theirs, examples)))


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """One wiki's search, judged at one revision of its index."""

    wiki: str
    revision: str | None
    seed: int
    available: Mapping[QuestionKind, int]
    runs: tuple[EvaluationRun, ...]
    comparison: RunComparison | None = None
    worst_count: int = 5

    def list_runs(self) -> tuple[EvaluationRun, ...]:
        """All that were asked: the runs, and the one they are compared with unless it is one of them."""
        theirs = self.comparison.theirs if self.comparison else None
        return self.runs if theirs is None or any(theirs is run for run in self.runs) else (*self.runs, theirs)

    def list_notes(self) -> tuple[str, ...]:
        """What a reader of the figures should know."""
        count = len(self.runs[0].outcomes)
        few = [f"{count} questions are few: the figures may say little"] if count < MIN_QUESTIONS else []
        said = (
            f"{run.label}: {note}" + (f" ({times} of {count} answers)" if times < count else "")
            for run in self.list_runs()
            for note, times in run.count_notes().items()
        )
        return (*few, *said)
