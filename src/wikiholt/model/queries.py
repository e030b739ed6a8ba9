"""Searches as they are written down, if the operator wants that."""

from dataclasses import dataclass
from enum import StrEnum


class SearchInterface(StrEnum):
    """By which way somebody searched."""

    HTTP = "http"
    OTTERWIKI = "otterwiki"
    MCP = "mcp"
    CLI = "cli"


@dataclass(frozen=True, slots=True)
class QueryRecord:
    """One search and what came of it; nothing says who asked."""

    at: float
    """Seconds since 1970."""
    surface: str
    query: str
    mode: str
    filtered: bool
    hits: int
    nothing_relevant: bool
    degraded: bool
    score: float
    """That of the best hit, 0 without one."""
    ms: float
    did_you_mean: str
    pages: tuple[str, ...]
    """Paths of the pages that were shown, best first."""
    lost: int = 0
    """How many searches before this one could not be written down."""


@dataclass(frozen=True, slots=True)
class QueryRetention:
    """What a query log may hold: entries of so many days, and the newest so many of them."""

    max_days: float
    max_records: int


@dataclass(frozen=True, slots=True)
class QueryRecords:
    """What a query log holds of a period, oldest first."""

    records: tuple[QueryRecord, ...]
    damaged_at: float | None = None
    """When the log was found damaged and begun anew, if it ever was."""
