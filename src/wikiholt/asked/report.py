"""What a query log tells: what is asked often, what finds nothing, what is slow, which pages nobody finds (pure)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from wikiholt.asked.beginnings import without_beginnings
from wikiholt.model import Searched


@dataclass(frozen=True, slots=True)
class AskedQuery:
    """One query however it was written, without regard to case and space; shown as it was written last."""

    query: str
    count: int
    mean_hits: float
    best_score: float
    without_result: int
    """How many of its answers had no hit, or none that is clearly relevant."""
    filtered: int
    """How many of those without a result had a filter, which may be why."""
    did_you_mean: str


@dataclass(frozen=True, slots=True)
class SlowQuery:
    """The slowest answer that one query had."""

    query: str
    ms: float
    at: float
    mode: str
    degraded: bool


@dataclass(frozen=True, slots=True)
class FoundPages:
    """Which of the pages that can be found were shown by an answer that had something relevant."""

    indexed: int
    never_found: int
    never: tuple[str, ...]
    """The first of those, by path."""
    often: tuple[tuple[str, int], ...]
    """The pages shown most often, with how often."""


@dataclass(frozen=True, slots=True)
class QueryReport:
    """What was searched for in one wiki in a period. Beginnings of queries that were typed on are counted apart."""

    since: datetime
    until: datetime
    logging: bool
    """Whether searches are written down now."""
    searches: int
    beginnings: int
    queries: int
    surfaces: Mapping[str, int]
    without_result: int
    degraded: int
    lost: int
    damaged_at: datetime | None
    p50_ms: float
    p95_ms: float
    frequent: tuple[AskedQuery, ...]
    unanswered: tuple[AskedQuery, ...]
    slow: tuple[SlowQuery, ...]
    pages: FoundPages | None
    """None where there is no index to ask."""


@dataclass(frozen=True, slots=True)
class Period:
    """What a report is about, and what is known beside the searches."""

    since: datetime
    until: datetime
    logging: bool
    damaged_at: datetime | None = None


def reported(searches: Sequence[Searched], paths: Collection[str] | None, period: Period, limit: int) -> QueryReport:
    """The report of these searches, given oldest first; lists have at most `limit` rows."""
    whole = without_beginnings(searches)
    groups: dict[str, list[Searched]] = {}
    for searched in whole:
        groups.setdefault(folded(searched.query), []).append(searched)
    asked = sorted(map(_asked, groups.values()), key=lambda each: (-each.count, folded(each.query)))
    unanswered = [each for each in asked if each.without_result]
    times = sorted(searched.ms for searched in searches)
    return QueryReport(
        since=period.since,
        until=period.until,
        logging=period.logging,
        searches=len(whole),
        beginnings=len(searches) - len(whole),
        queries=len(groups),
        surfaces=dict(sorted(Counter(searched.surface for searched in whole).items())),
        without_result=sum(each.without_result for each in asked),
        degraded=sum(searched.degraded for searched in searches),
        lost=sum(searched.lost for searched in searches),
        damaged_at=period.damaged_at,
        p50_ms=_share(times, 0.5),
        p95_ms=_share(times, 0.95),
        frequent=tuple(asked[:limit]),
        unanswered=tuple(sorted(unanswered, key=lambda each: -each.without_result)[:limit]),
        slow=_slowest(searches, limit),
        pages=None if paths is None else _found(whole, paths, limit),
    )


def folded(query: str) -> str:
    """What makes two queries the same: neither case nor space tells them apart."""
    return _spaced(query.casefold())


def _spaced(query: str) -> str:
    return " ".join(query.split())


def _asked(group: Sequence[Searched]) -> AskedQuery:
    nothing = [searched for searched in group if searched.nothing_relevant or not searched.hits]
    return AskedQuery(
        query=_spaced(group[-1].query),
        count=len(group),
        mean_hits=sum(searched.hits for searched in group) / len(group),
        best_score=max(searched.score for searched in group),
        without_result=len(nothing),
        filtered=sum(searched.filtered for searched in nothing),
        did_you_mean=next((each.did_you_mean for each in reversed(group) if each.did_you_mean), ""),
    )


def _slowest(searches: Sequence[Searched], limit: int) -> tuple[SlowQuery, ...]:
    slowest: dict[str, Searched] = {}
    for searched in sorted(searches, key=lambda each: -each.ms):
        slowest.setdefault(folded(searched.query), searched)
        if len(slowest) == limit:
            break
    return tuple(
        SlowQuery(_spaced(each.query), each.ms, each.at, each.mode, each.degraded) for each in slowest.values()
    )


def _found(searches: Sequence[Searched], paths: Collection[str], limit: int) -> FoundPages:
    # Where nothing is relevant the nearest pages there are are shown all the same: they were not found.
    shown = Counter(path for searched in searches if not searched.nothing_relevant for path in searched.pages)
    never = sorted(path for path in paths if path not in shown)
    # A page that is gone since was found then, and cannot be looked at now.
    there = [(path, count) for path, count in shown.items() if path in paths]
    often = sorted(there, key=lambda each: (-each[1], each[0]))
    return FoundPages(len(paths), len(never), tuple(never[:limit]), tuple(often[:limit]))


def _share(ordered: Sequence[float], share: float) -> float:
    """The smallest of these values that this share of them does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0
