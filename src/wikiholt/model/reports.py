"""What a sync did."""

from dataclasses import dataclass

from wikiholt.model.content import Problem


@dataclass(frozen=True, slots=True)
class SyncReport:
    """What a sync did."""

    revision: str
    added: int = 0
    changed: int = 0
    moved: int = 0
    deleted: int = 0
    unchanged: int = 0
    chunks_embedded: int = 0
    chunks_reused: int = 0
    problems: tuple[Problem, ...] = ()
    seconds: float = 0.0
    rebuilt: bool = False
