"""The record of one round of the crash test, and a summary of many."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.crash.acks import UNSURE, Acks
from tests.crash.child_process import Messages


@dataclass(slots=True)
class FailureOutcome:
    """The results of the processes of one round."""

    concurrent_operation: str = ""
    outcome: str = ""
    hit_window: bool = False
    lost_lease: str = ""
    """The revision to which another node synced the index while the writer was suspended."""
    searches: dict[str, int] = field(default_factory=dict)
    messages: list[Messages] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


@dataclass(slots=True)
class CrashRound:
    """One round: what was done and the result. `fault` is empty when all checks passed."""

    number: int
    operation: str
    failure: str
    served: bool = False
    changes: str = ""
    concurrent_operation: str = ""
    damage: list[str] = field(default_factory=list)
    writer_outcome: str = ""
    hit_window: bool = False
    searches: dict[str, int] = field(default_factory=dict)
    registry: str = ""
    search_outcome: str = ""
    recovery_path: str = ""
    recovery_seconds: float = 0.0
    fault: str = ""
    seconds: float = 0.0

    def add_fault(self, fault: str) -> None:
        self.fault = f"{self.fault}\n{fault}".strip()

    def record(self, outcome: FailureOutcome, expected: Acks, subject: str) -> None:
        """Record what the processes did, and what they acknowledged."""
        self.concurrent_operation, self.writer_outcome = outcome.concurrent_operation, outcome.outcome
        self.hit_window, self.searches = outcome.hit_window, outcome.searches
        for fault in outcome.faults:
            self.add_fault(fault)
        for messages in outcome.messages:
            expected.record(messages)
        if expected.wikis[subject] is None and self.operation != "remove":
            expected.wikis[subject] = UNSURE

    def __str__(self) -> str:
        damage = f" ({', '.join(self.damage)})" if self.damage else ""
        concurrent = f" beside {self.concurrent_operation}" if self.concurrent_operation else ""
        hit = ", hit" if self.hit_window else ""
        done = f"{self.number:4}  {self.operation}{concurrent}, {self.failure}{damage}: {self.writer_outcome}{hit}"
        recovery = f"{self.search_outcome or '–'}, {self.recovery_path or '–'}{' by serve' if self.served else ''}"
        registry = f"registry {self.registry or '–'} ({self.seconds:.1f} s)"
        text = f"{done} → {recovery} in {self.recovery_seconds:.1f} s; {registry}"
        return text + (f"\n      FAULT: {self.fault}" if self.fault else "")


def pair_each(
    operations: Sequence[str], failures: Sequence[str], can_fail: Callable[[str, str], bool], count: int
) -> list[tuple[str, str]]:
    """`count` pairs of an operation and a failure that is possible during it. Both take turns, and first come the
    failures that are possible during few operations, with these operations."""
    operations, waiting = list(dict.fromkeys(operations)), list(dict.fromkeys(failures))
    operations.sort(key=lambda operation: -sum(can_fail(kind, operation) for kind in waiting))
    waiting.sort(key=lambda kind: sum(can_fail(kind, operation) for operation in operations))
    pairs = []
    for number in range(count):
        operation = operations[number % len(operations)]
        kind = next(kind for kind in waiting if can_fail(kind, operation))
        waiting.remove(kind)
        waiting.append(kind)
        pairs.append((operation, kind))
    return pairs


def format_summary(rounds: Sequence[CrashRound]) -> str:
    """Counts of operations, failures and results."""
    lines = [
        f"{title}: " + _format_counts(getattr(round_, name) for round_ in rounds)
        for title, name in (
            ("operations", "operation"),
            ("failures", "failure"),
            ("concurrent operations", "concurrent_operation"),
            ("how the writer ended", "writer_outcome"),
            ("at the next start a search", "search_outcome"),
            ("the index recovered", "recovery_path"),
            ("the registry", "registry"),
        )
    ]
    kills = [round_ for round_ in rounds if round_.failure.startswith(("kill", "power"))]
    killed = sum(round_.writer_outcome == "killed" for round_ in kills)
    lines.append(
        f"kills: {len(kills)} planned, {killed} done, {sum(round_.hit_window for round_ in kills)} hit the window"
    )
    lines.append("damage: " + _format_counts(damage for round_ in rounds for damage in round_.damage))
    searches: Counter[str] = Counter()
    for round_ in rounds:
        searches.update(round_.searches)
    lines.append("concurrent searches: " + ", ".join(f"{what} {count}" for what, count in searches.most_common()))
    longest = max(rounds, key=lambda round_: round_.recovery_seconds, default=None)
    if longest is not None:
        lines.append(f"longest recovery: {longest.recovery_seconds:.1f} s (round {longest.number})")
    faults = sum(bool(round_.fault) for round_ in rounds)
    lines.append(f"{len(rounds)} rounds, {faults} faults, {sum(round_.seconds for round_ in rounds):.0f} s")
    return "\n".join(lines)


def _format_counts(names: object) -> str:
    counted = Counter(names)  # type: ignore[call-overload]
    return ", ".join(f"{what or '–'} {count}" for what, count in counted.most_common())
