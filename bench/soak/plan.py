"""The plan of a soak: restarts in the first part, then one process that is measured at regular points."""

from dataclasses import dataclass
from enum import StrEnum

RESTART_SHARE = 0.4
"""The share of the time with restarts; the rest is one life, in which growth is measured."""


class Step(StrEnum):
    """An action on the service at one time."""

    TERMINATE = "SIGTERM"
    KILL = "SIGKILL"
    WARM = "warm"
    """Every wiki is written and searched by several clients, so that all its connections are open."""
    MEASURE = "measure"


@dataclass(frozen=True, slots=True)
class Plan:
    """The size of a soak; `interval` is how often the service checks a repository without a notification."""

    seconds: float
    wikis: int
    interval: float = 10.0
    restarts: int = 4
    points: int = 12
    readers: int = 3
    writers: int = 2
    waking: int = 1
    silent: int = 2
    think: float = 0.12
    """Seconds that a reader pauses between two requests; the others pause a multiple of it."""
    backups_kept: int = 3
    seed: int = 1

    def make_steps(self) -> list[tuple[float, Step]]:
        """The steps with their times in seconds. Every life is measured; the last one at regular points."""
        early = self.seconds * RESTART_SHARE
        steps: list[tuple[float, Step]] = []
        for number in range(self.restarts):
            at = early * (number + 1) / self.restarts
            # Not measured just before the signal, which must interrupt normal work.
            steps.append((at - 0.6 * early / self.restarts, Step.MEASURE))
            steps.append((at, Step.KILL if number % 2 else Step.TERMINATE))
        steps.append((early + 0.01, Step.WARM))
        alone = (self.seconds - early) / self.points
        steps += [(early + alone * (number + 1), Step.MEASURE) for number in range(self.points)]
        return sorted(steps)
