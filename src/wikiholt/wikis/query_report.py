"""Which searches were only the beginning of one that was being typed (pure).

Pages that search as one types ask for `dep`, `deploy` and `deploy on friday` within seconds, and for the last of them
once more when it is sent. Nothing tells who asked, so whatever is typed on is taken for the same person's.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from math import ceil

from wikiholt.domain.search import QueryRecord, SearchInterface

_TYPED_INTERFACES = (SearchInterface.HTTP.value, SearchInterface.OTTERWIKI.value)
"""Ways by which people type; agents and commands say at once what they want."""
_TYPING_WINDOW_S = 5.0
"""Seconds within which somebody types on."""
_MAX_LOOKAHEAD = 200
"""Searches after one that are looked at, however many there are in those seconds."""


def drop_unfinished_queries(records: Sequence[QueryRecord]) -> list[QueryRecord]:
    """The searches, given oldest first, that nobody typed on or sent again within seconds by the same way."""
    texts = [searched.query.lstrip().casefold() for searched in records]
    return [searched for place, searched in enumerate(records) if not _is_unfinished(records, texts, place)]


def _is_unfinished(records: Sequence[QueryRecord], texts: Sequence[str], position: int) -> bool:
    searched, text = records[position], texts[position]
    if searched.surface not in _TYPED_INTERFACES:
        return False
    for number in islice(range(position + 1, len(records)), _MAX_LOOKAHEAD):
        after = records[number]
        if after.at - searched.at > _TYPING_WINDOW_S:
            return False
        if after.surface == searched.surface and texts[number].startswith(text):
            return True
    return False


# What a query log tells: what is asked often, what finds nothing, what is slow, which pages nobody finds (pure).


@dataclass(frozen=True, slots=True)
class QueryStats:
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
class PageReach:
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
    frequent: tuple[QueryStats, ...]
    unanswered: tuple[QueryStats, ...]
    slow: tuple[SlowQuery, ...]
    pages: PageReach | None
    """None where there is no index to ask."""


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """What a report is about, and what is known beside the searches."""

    since: datetime
    until: datetime
    logging: bool
    damaged_at: datetime | None = None


def build_report(
    records: Sequence[QueryRecord], paths: Collection[str] | None, period: ReportPeriod, limit: int
) -> QueryReport:
    """The report of these searches, given oldest first; lists have at most `limit` rows."""
    whole = drop_unfinished_queries(records)
    groups: dict[str, list[QueryRecord]] = {}
    for searched in whole:
        groups.setdefault(normalize_query(searched.query), []).append(searched)
    asked = sorted(map(_summarize_query, groups.values()), key=lambda each: (-each.count, normalize_query(each.query)))
    unanswered = [each for each in asked if each.without_result]
    times = sorted(searched.ms for searched in records)
    return QueryReport(
        since=period.since,
        until=period.until,
        logging=period.logging,
        searches=len(whole),
        beginnings=len(records) - len(whole),
        queries=len(groups),
        surfaces=dict(sorted(Counter(searched.surface for searched in whole).items())),
        without_result=sum(each.without_result for each in asked),
        degraded=sum(searched.degraded for searched in records),
        lost=sum(searched.lost for searched in records),
        damaged_at=period.damaged_at,
        p50_ms=_get_percentile(times, 0.5),
        p95_ms=_get_percentile(times, 0.95),
        frequent=tuple(asked[:limit]),
        unanswered=tuple(sorted(unanswered, key=lambda each: -each.without_result)[:limit]),
        slow=_find_slowest(records, limit),
        pages=None if paths is None else _build_page_reach(whole, paths, limit),
    )


def normalize_query(query: str) -> str:
    """What makes two queries the same: neither case nor space tells them apart."""
    return _normalize_spaces(query.casefold())


def _normalize_spaces(query: str) -> str:
    return " ".join(query.split())


def _summarize_query(records: Sequence[QueryRecord]) -> QueryStats:
    nothing = [searched for searched in records if searched.nothing_relevant or not searched.hits]
    return QueryStats(
        query=_normalize_spaces(records[-1].query),
        count=len(records),
        mean_hits=sum(searched.hits for searched in records) / len(records),
        best_score=max(searched.score for searched in records),
        without_result=len(nothing),
        filtered=sum(searched.filtered for searched in nothing),
        did_you_mean=next((each.did_you_mean for each in reversed(records) if each.did_you_mean), ""),
    )


def _find_slowest(records: Sequence[QueryRecord], limit: int) -> tuple[SlowQuery, ...]:
    slowest: dict[str, QueryRecord] = {}
    for searched in sorted(records, key=lambda each: -each.ms):
        slowest.setdefault(normalize_query(searched.query), searched)
        if len(slowest) == limit:
            break
    return tuple(
        SlowQuery(_normalize_spaces(each.query), each.ms, each.at, each.mode, each.degraded)
        for each in slowest.values()
    )


def _build_page_reach(records: Sequence[QueryRecord], paths: Collection[str], limit: int) -> PageReach:
    # Where nothing is relevant the nearest pages there are are shown all the same: they were not found.
    shown = Counter(path for searched in records if not searched.nothing_relevant for path in searched.pages)
    never = sorted(path for path in paths if path not in shown)
    # A page that is gone since was found then, and cannot be looked at now.
    there = [(path, count) for path, count in shown.items() if path in paths]
    often = sorted(there, key=lambda each: (-each[1], each[0]))
    return PageReach(len(paths), len(never), tuple(never[:limit]), tuple(often[:limit]))


def _get_percentile(sorted_values: Sequence[float], fraction: float) -> float:
    """The smallest of these values that this share of them does not exceed."""
    return sorted_values[max(0, ceil(fraction * len(sorted_values)) - 1)] if sorted_values else 0.0
