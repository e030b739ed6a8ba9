"""Whether something grows: figures at regular points of the life of one process, and how much each may grow."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WARM_UP = 1 / 3
"""The first third of a life is warm-up: caches fill, and memory is allocated that is used again later."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How much more the last third of a life may show than the middle third: a share of it and an absolute amount."""

    share: float
    amount: float

    def __str__(self) -> str:
        parts = [f"{self.share:.0%}"] if self.share else []
        parts += [f"{self.amount:g}"] if self.amount else []
        return " + ".join(parts) or "0"


TOLERANCES: Mapping[str, Tolerance] = {
    "memory MB": Tolerance(0.05, 4),
    "own memory MB": Tolerance(0.05, 4),
    "descriptors": Tolerance(0.02, 8),
    "threads": Tolerance(0, 6),
    "child processes": Tolerance(0, 4),
    "files": Tolerance(0.02, 8),
    "index kB a chunk": Tolerance(0.05, 0),
    "cache kB a chunk": Tolerance(0.05, 1),
    "registry kB": Tolerance(0.05, 16),
}
"""`files` are those that wikis, caches and registry have; backups have a bound of their own, by their retention."""


@dataclass(frozen=True, slots=True)
class Point:
    """The figures at one moment: the life of the process, the seconds since the start, and the values."""

    life: int
    at: float
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Trend:
    """One figure over the longest life."""

    name: str
    before: float
    after: float
    tolerance: Tolerance

    @property
    def growth(self) -> float:
        return self.after - self.before

    @property
    def allowed(self) -> float:
        return self.before * self.tolerance.share + self.tolerance.amount

    @property
    def grows(self) -> bool:
        return self.growth > self.allowed


def find_longest_life(points: Sequence[Point]) -> list[Point]:
    """The points of the life with most of them."""
    lives = {point.life for point in points}
    return max(([p for p in points if p.life == life] for life in sorted(lives)), key=len, default=[])


def compute_trends(points: Sequence[Point]) -> list[Trend]:
    """The change of each figure in the longest life, from its middle third to its last; raises ValueError on too few."""
    life = find_longest_life(points)
    if len(life) < 4:
        raise ValueError(f"only {len(life)} points were measured in one life; a trend needs four")
    warm = life[max(1, round(len(life) * WARM_UP)) :]
    half = len(warm) // 2
    found = []
    for name, tolerance in TOLERANCES.items():
        before = statistics.median(point.figures[name] for point in warm[: len(warm) - half])
        after = statistics.median(point.figures[name] for point in warm[-half:])
        found.append(Trend(name, before, after, tolerance))
    return found
