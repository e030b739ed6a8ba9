"""What an evaluation found: configurations side by side."""

from collections.abc import Mapping
from dataclasses import dataclass

from wikiholt.evaluating.chance import Difference
from wikiholt.evaluating.measuring import Outcome, Run, compared, differing
from wikiholt.evaluating.questions import Kind

FEW = 30
"""Questions below which figures say little."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two configurations, asked the same: by how much the first is better, and where they differ most."""

    ours: Run
    theirs: Run
    differences: Mapping[str, Difference]
    examples: tuple[tuple[Outcome, Outcome], ...]

    @classmethod
    def of(cls, ours: Run, theirs: Run, seed: int, examples: int) -> "Comparison":
        return cls(ours, theirs, compared(ours, theirs, seed), tuple(differing(ours, theirs, examples)))


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One wiki's search, judged at one revision of its index."""

    wiki: str
    revision: str | None
    seed: int
    available: Mapping[Kind, int]
    runs: tuple[Run, ...]
    comparison: Comparison | None = None
    worst: int = 5

    def everyone(self) -> tuple[Run, ...]:
        """All that were asked: the runs, and the one they are compared with unless it is one of them."""
        theirs = self.comparison.theirs if self.comparison else None
        return self.runs if theirs is None or any(theirs is run for run in self.runs) else (*self.runs, theirs)

    def notes(self) -> tuple[str, ...]:
        """What a reader of the figures should know."""
        count = len(self.runs[0].outcomes)
        few = [f"{count} questions are few: the figures may say little"] if count < FEW else []
        said = (
            f"{run.label}: {note}" + (f" ({times} of {count} answers)" if times < count else "")
            for run in self.everyone()
            for note, times in run.notes().items()
        )
        return (*few, *said)
