"""One round of the crash gate as it is told, and many as figures."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Round:
    """One round: what was done and what came of it; `fault` is empty when all that must hold held."""

    number: int
    deed: str
    blow: str
    served: bool = False
    changes: str = ""
    beside: str = ""
    damage: list[str] = field(default_factory=list)
    writer: str = ""
    hit: bool = False
    searches: dict[str, int] = field(default_factory=dict)
    registry: str = ""
    before: str = ""
    way: str = ""
    recovery_seconds: float = 0.0
    fault: str = ""
    seconds: float = 0.0

    def blame(self, fault: str) -> None:
        self.fault = f"{self.fault}\n{fault}".strip()

    def __str__(self) -> str:
        harmed = f" ({', '.join(self.damage)})" if self.damage else ""
        beside = f" beside {self.beside}" if self.beside else ""
        done = f"{self.number:4}  {self.deed}{beside}, {self.blow}{harmed}: {self.writer}{', hit' if self.hit else ''}"
        came = f"{self.before or '–'}, {self.way or '–'}{' by serve' if self.served else ''}"
        told = (
            f"{done} → {came} in {self.recovery_seconds:.1f} s; registry {self.registry or '–'} ({self.seconds:.1f} s)"
        )
        return told + (f"\n      FAULT: {self.fault}" if self.fault else "")


def figures(played: Sequence[Round]) -> str:
    """What was done and what came of it, counted."""
    lines = [
        f"{title}: " + _counted(getattr(each, name) for each in played)
        for title, name in (
            ("deeds", "deed"),
            ("blows", "blow"),
            ("beside them", "beside"),
            ("how the struck process ended", "writer"),
            ("at the next start a search", "before"),
            ("the index recovered", "way"),
            ("the registry", "registry"),
        )
    ]
    kills = [each for each in played if each.blow.startswith(("kill", "power"))]
    killed = sum(each.writer == "killed" for each in kills)
    lines.append(f"kills: {len(kills)} meant, {killed} fell, {sum(each.hit for each in kills)} hit the window")
    lines.append("damage: " + _counted(told for each in played for told in each.damage))
    searches: Counter[str] = Counter()
    for each in played:
        searches.update(each.searches)
    lines.append("searches meanwhile: " + ", ".join(f"{what} {count}" for what, count in searches.most_common()))
    longest = max(played, key=lambda each: each.recovery_seconds, default=None)
    if longest is not None:
        lines.append(f"longest recovery: {longest.recovery_seconds:.1f} s (round {longest.number})")
    faults = sum(bool(each.fault) for each in played)
    lines.append(f"{len(played)} rounds, {faults} faults, {sum(each.seconds for each in played):.0f} s")
    return "\n".join(lines)


def _counted(names: object) -> str:
    counted = Counter(names)  # type: ignore[call-overload]
    return ", ".join(f"{what or '–'} {count}" for what, count in counted.most_common())
