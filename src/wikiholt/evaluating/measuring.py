"""Asks questions and judges the answers."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from wikiholt.evaluating.chance import Difference, Interval, difference, interval
from wikiholt.evaluating.metrics import DEPTH, METRICS
from wikiholt.evaluating.questions import Kind, Question
from wikiholt.model import Answer, Mode
from wikiholt.search import MAX_HITS, Request

Ask = Callable[[Question, Request], Answer]
ALL = "all"


@dataclass(frozen=True, slots=True)
class Found:
    """A page that was returned for a question."""

    path: str
    name: str
    score: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """A question, the first pages returned for it without those it excludes, and how good that is by each metric."""

    question: Question
    found: tuple[Found, ...]
    figures: Mapping[str, float]
    took_ms: float
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One configuration, asked everything."""

    label: str
    mode: Mode
    outcomes: tuple[Outcome, ...]

    def figures(self, kind: Kind | None = None, seed: int = 0) -> dict[str, Interval]:
        """The mean of each metric over the questions of a kind, or over all."""
        chosen = [each for each in self.outcomes if kind in (None, each.question.kind)]
        return {metric: interval([each.figures[metric] for each in chosen], seed) for metric in METRICS}

    def kinds(self) -> dict[Kind, int]:
        """How many questions of each kind there are, in the order of the kinds."""
        counts = {kind: sum(each.question.kind is kind for each in self.outcomes) for kind in Kind}
        return {kind: count for kind, count in counts.items() if count}

    def milliseconds(self) -> tuple[float, float]:
        """The time that half, and that 95 in a hundred of the answers took at most."""
        times = sorted(each.took_ms for each in self.outcomes)
        return times[(len(times) - 1) // 2], times[min(len(times) - 1, int(len(times) * 0.95))]

    def worst(self, count: int) -> list[Outcome]:
        """The questions answered worst: by the rank of what was wanted, then as they were asked."""
        ordered = sorted(self.outcomes, key=lambda each: (each.figures["ndcg@10"], each.figures["mrr"]))
        return [each for each in ordered if each.figures["ndcg@10"] < 1.0][:count]

    def notes(self) -> dict[str, int]:
        """What answers said of how they came about, and how many said so."""
        return dict(Counter(note for each in self.outcomes for note in each.notes))


def run(label: str, mode: Mode, questions: Sequence[Question], ask: Ask) -> Run:
    """Ask every question once; whatever a search raises is raised."""
    return Run(label, mode, tuple(answered(question, mode, ask) for question in questions))


def answered(question: Question, mode: Mode, ask: Ask) -> Outcome:
    """Ask one question and judge what is returned."""
    answer = ask(question, Request(question.text, n=wanted(question), mode=mode))
    found = [Found(hit.path, hit.name, hit.score) for hit in answer.hits]
    return judged(question, found, answer.took_ms, answer.notes)


def wanted(question: Question) -> int:
    """How many pages must be asked for, so that enough are left when the excluded ones are taken out."""
    return min(MAX_HITS, DEPTH + len(question.excluded))


def judged(question: Question, returned: Iterable[Found], took_ms: float, notes: tuple[str, ...] = ()) -> Outcome:
    """How good a ranking is for a question, whoever made it."""
    found = [each for each in returned if each.path not in question.excluded]
    ranking = list(dict.fromkeys(each.path for each in found))
    figures = {name: metric(ranking, question.relevant) for name, metric in METRICS.items()}
    return Outcome(question, tuple(found[:DEPTH]), figures, took_ms, notes)


def compared(ours: Run, theirs: Run, seed: int = 0) -> dict[str, Difference]:
    """How the first differs from the second by each metric; both were asked the same questions."""
    pairs = list(zip(ours.outcomes, theirs.outcomes, strict=True))
    if any(one.question is not other.question for one, other in pairs):
        raise ValueError("the two were not asked the same questions")
    return {
        metric: difference(
            [one.figures[metric] for one, _ in pairs], [other.figures[metric] for _, other in pairs], seed
        )
        for metric in METRICS
    }


def differing(ours: Run, theirs: Run, count: int) -> list[tuple[Outcome, Outcome]]:
    """The questions on which the two differ most by nDCG, the largest loss of the first before its largest gain."""
    pairs = [pair for pair in zip(ours.outcomes, theirs.outcomes, strict=True) if _gap(*pair)]
    return sorted(sorted(pairs, key=lambda pair: -abs(_gap(*pair)))[:count], key=lambda pair: _gap(*pair))


def _gap(one: Outcome, other: Outcome) -> float:
    return one.figures["ndcg@10"] - other.figures["ndcg@10"]
