"""Whether an index is whole, as far as that is known."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class HealthCondition(StrEnum):
    """`broken` once damage is noticed, `healing` once the damaged index is set aside and until another stands."""

    OK = "ok"
    REPAIRING = "healing"
    BROKEN = "broken"


class VerificationResult(StrEnum):
    """What comparing an index's bytes with those its last writer left has shown.

    `none` while there is no index, or it is being written; `too large` for one whose bytes are not compared; `changed`
    for one that is not as its last writer left it, and too large to be read at once to see whether that matters.
    """

    COMPARED = "compared"
    NONE = "none"
    TOO_LARGE = "too large"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """How an index is. `reason` says what was found, `since` when, `aside` where the damaged one was put."""

    condition: HealthCondition = HealthCondition.OK
    reason: str = ""
    since: datetime | None = None
    quarantined_as: str = ""
    checked_at: datetime | None = None
    """When every byte was last read and found right."""

    @property
    def is_ok(self) -> bool:
        return self.condition is HealthCondition.OK
