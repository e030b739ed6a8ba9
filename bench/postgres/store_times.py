"""Times of operations that run on each store in turn."""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from bench.measures import get_percentiles_ms, measure_seconds


@dataclass
class StoreTimes:
    """Seconds by operation and store."""

    of: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def measure(self, what: str, whom: str, work: Callable[..., object], *arguments: object) -> None:
        self.of.setdefault((what, whom), []).append(measure_seconds(work, *arguments))

    def format_table(self, first: str, whom: Sequence[str]) -> Iterator[str]:
        """A row for each operation: p50 and p95 of every store, and the ratio of the second to the first."""
        heads = [first, *(f"{name}, p50 / p95 ms" for name in whom), f"{whom[1]} ÷ {whom[0]}"]
        yield "| " + " | ".join(heads) + " |"
        yield "|---" * len(heads) + "|"
        for what in dict.fromkeys(what for what, _ in self.of):
            cells = [self._format_cell(what, name) for name in whom]
            ratio = statistics.median(self.of[what, whom[1]]) / statistics.median(self.of[what, whom[0]])
            yield "| " + " | ".join([what, *cells, f"{ratio:.1f}"]) + " |"

    def _format_cell(self, what: str, whom: str) -> str:
        if (what, whom) not in self.of:
            return "–"
        p50, p95 = get_percentiles_ms(self.of[what, whom])
        return f"{p50:.2f} / {p95:.2f}"
