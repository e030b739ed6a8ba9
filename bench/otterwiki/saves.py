"""Saves in two wikis in turns, and the statistics of their differences."""

import os
import random
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.otterwiki.otterwiki_server import OtterwikiServer, SaveCost

ROW_SECONDS = 12.0
"""Longer than a sync waits for the end of a row of saves, which is ten seconds."""
_RESAMPLES = 2000
_WORDS = [
    "otters",
    "holts",
    "rivers",
    "banks",
    "reeds",
    "kelp",
    "clams",
    "stones",
    "tools",
    "paws",
    "fur",
    "whiskers",
    "currents",
    "estuaries",
    "streams",
    "weirs",
    "dams",
    "roots",
    "willows",
    "alders",
    "tracks",
    "spraints",
    "cubs",
    "pairs",
    "winters",
    "floods",
    "summers",
    "pools",
    "riffles",
    "trout",
    "eels",
    "crayfish",
]


@dataclass(slots=True)
class SavePairs:
    """Saves without and with the plugin, those at the same position made under the same conditions."""

    without: list[SaveCost] = field(default_factory=list)
    with_: list[SaveCost] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    """The row that a pair belongs to; in a row, pairs are not independent."""

    def get_differences(self, kind: str) -> list[float]:
        return [getattr(ours, kind) - getattr(bare, kind) for bare, ours in zip(self.without, self.with_, strict=True)]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure with the 95 % interval of a bootstrap."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.1f} ({self.low:+.1f} to {self.high:+.1f})"


def estimate(values: Sequence[float], groups: Sequence[int], statistic: str) -> Estimate:
    """The median or mean of the values; whole groups are drawn again."""
    compute: Callable[[Sequence[float]], float] = statistics.median if statistic == "median" else statistics.fmean
    parts: dict[int, list[float]] = defaultdict(list)
    for value, group in zip(values, groups, strict=True):
        parts[group].append(value)
    generator, names = random.Random(7), list(parts)
    drawn = sorted(
        compute([value for name in generator.choices(names, k=len(names)) for value in parts[name]])
        for _ in range(_RESAMPLES)
    )
    return Estimate(compute(values), drawn[int(0.025 * _RESAMPLES)], drawn[int(0.975 * _RESAMPLES)])


@dataclass(slots=True)
class RowCosts:
    """Processor time of all threads and child processes for rows of saves, syncs included."""

    saves: int = 0
    without: float = 0.0
    with_: float = 0.0


class SavesInTurns:
    """Saves the same pages in both wikis, both on one core, while the client has another."""

    def __init__(self, bare: OtterwikiServer, ours: OtterwikiServer) -> None:
        self._bare = bare
        self._ours = ours
        self._count = 0
        *others, last = sorted(os.sched_getaffinity(0))
        for wiki in (bare, ours):
            wiki.use_cores({last})
        if others:
            os.sched_setaffinity(0, set(others))

    def save_idle(self, pairs: SavePairs, seconds: float) -> None:
        """Save alternately; before each save the index has followed the last one, and nothing else runs."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            text = self._make_text()
            # Both orders equally often: the second save finds the caches of the machine as the first left them.
            order = (self._bare, self._ours)[:: 1 if len(pairs.groups) % 2 else -1]
            results = {}
            for wiki in order:
                self._ours.wait_until_fresh()
                results[wiki] = wiki.save("Bench", text)
            pairs.without.append(results[self._bare])
            pairs.with_.append(results[self._ours])
            pairs.groups.append(len(pairs.groups))

    def save_in_rows(self, pairs: SavePairs, costs: RowCosts, seconds: float) -> None:
        """Save in rows without a pause, longer than a sync waits for their end, alternately in both wikis."""
        self._ours.wait_until_fresh()
        took = statistics.median(self._bare.save("Bench", self._make_text()).clock for _ in range(3))
        length = max(5, round(ROW_SECONDS * 1e3 / took))
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            texts = [self._make_text() for _ in range(length)]
            row = 1 + (pairs.groups[-1] if pairs.groups else 0)
            order = (self._bare, self._ours)[:: 1 if row % 2 else -1]
            for wiki in order:
                began = wiki.read_cpu()
                saves = [wiki.save("Bench", text) for text in texts]
                wiki.wait_until_fresh()
                used = wiki.read_cpu() - began
                if wiki is self._ours:
                    pairs.with_ += saves
                    costs.with_ += used
                else:
                    pairs.without += saves
                    costs.without += used
            pairs.groups += [row] * length
            costs.saves += length

    def _make_text(self) -> str:
        """A page of about 150 words that no other save has."""
        self._count += 1
        words = random.Random(self._count).choices(_WORDS, k=150)
        return f"# Bench\n\nWritten {self._count} times at {time.time()}, about otters. {' '.join(words)}.\n"
