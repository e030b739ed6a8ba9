"""Whether an index is whole, as far as that is known."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Condition(StrEnum):
    """`broken` once damage is noticed, `healing` once the damaged index is set aside and until another stands."""

    OK = "ok"
    HEALING = "healing"
    BROKEN = "broken"


class Proof(StrEnum):
    """What comparing an index's bytes with those its last writer left has shown.

    `none` while there is no index, or it is being written; `too large` for one whose bytes are not compared; `changed`
    for one that is not as its last writer left it, and too large to be read at once to see whether that matters.
    """

    COMPARED = "compared"
    NONE = "none"
    TOO_LARGE = "too large"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Health:
    """How an index is. `reason` says what was found, `since` when, `aside` where the damaged one was put."""

    condition: Condition = Condition.OK
    reason: str = ""
    since: datetime | None = None
    aside: str = ""
    checked_at: datetime | None = None
    """When every byte was last read and found right."""

    @property
    def well(self) -> bool:
        return self.condition is Condition.OK
