"""What an evaluation found: configurations side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

from wikiholt.evaluating.chance import MetricDifference
from wikiholt.evaluating.measuring import QuestionOutcome, EvaluationRun, compare_runs, find_differences
from wikiholt.evaluating.questions import QuestionKind

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
