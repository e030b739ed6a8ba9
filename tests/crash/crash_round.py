"""One round of the crash gate as it is told, and many as figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class CrashRound:
    """One round: what was done and what came of it; `fault` is empty when all that must hold held."""

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

    def __str__(self) -> str:
        harmed = f" ({', '.join(self.damage)})" if self.damage else ""
        beside = f" beside {self.concurrent_operation}" if self.concurrent_operation else ""
        hit = ", hit" if self.hit_window else ""
        done = f"{self.number:4}  {self.operation}{beside}, {self.failure}{harmed}: {self.writer_outcome}{hit}"
        came = f"{self.search_outcome or '–'}, {self.recovery_path or '–'}{' by serve' if self.served else ''}"
        told = (
            f"{done} → {came} in {self.recovery_seconds:.1f} s; registry {self.registry or '–'} ({self.seconds:.1f} s)"
        )
        return told + (f"\n      FAULT: {self.fault}" if self.fault else "")


def format_summary(rounds: Sequence[CrashRound]) -> str:
    """What was done and what came of it, counted."""
    lines = [
        f"{title}: " + _format_counts(getattr(each, name) for each in rounds)
        for title, name in (
            ("operations", "operation"),
            ("failures", "failure"),
            ("beside them", "concurrent_operation"),
            ("how the struck process ended", "writer_outcome"),
            ("at the next start a search", "search_outcome"),
            ("the index recovered", "recovery_path"),
            ("the registry", "registry"),
        )
    ]
    kills = [each for each in rounds if each.failure.startswith(("kill", "power"))]
    killed = sum(each.writer_outcome == "killed" for each in kills)
    lines.append(f"kills: {len(kills)} meant, {killed} fell, {sum(each.hit_window for each in kills)} hit the window")
    lines.append("damage: " + _format_counts(told for each in rounds for told in each.damage))
    searches: Counter[str] = Counter()
    for each in rounds:
        searches.update(each.searches)
    lines.append("searches meanwhile: " + ", ".join(f"{what} {count}" for what, count in searches.most_common()))
    longest = max(rounds, key=lambda each: each.recovery_seconds, default=None)
    if longest is not None:
        lines.append(f"longest recovery: {longest.recovery_seconds:.1f} s (round {longest.number})")
    faults = sum(bool(each.fault) for each in rounds)
    lines.append(f"{len(rounds)} rounds, {faults} faults, {sum(each.seconds for each in rounds):.0f} s")
    return "\n".join(lines)


def _format_counts(names: object) -> str:
    counted = Counter(names)  # type: ignore[call-overload]
    return ", ".join(f"{what or '–'} {count}" for what, count in counted.most_common())
