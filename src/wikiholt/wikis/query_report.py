"""Reports on a query log: frequent, unanswered and slow queries, and pages that are never found. Pure functions.

Search-as-you-type sends `dep`, `deploy` and `deploy on friday` within seconds, and the last one again on submit. The
log does not identify people, so a query that continues an earlier one is taken for the same person's.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from math import ceil

from wikiholt.domain.search import QueryRecord, SearchInterface
from wikiholt.text.analysis import TOKEN_PATTERN
from wikiholt.text.languages import is_stopword

_TYPED_INTERFACES = (SearchInterface.HTTP.value, SearchInterface.OTTERWIKI.value)
"""Interfaces where people type; agents and commands send complete queries."""
_TYPING_WINDOW_S = 5.0
"""Seconds within which a query may be continued."""
_MAX_LOOKAHEAD = 200
"""How many later queries are compared at most."""
_RETRY_WINDOW_S = 60.0
"""Seconds within which a query with a result may be for the same as one without."""
_MAX_SYNONYM_WORDS = 3


def drop_unfinished_queries(records: Sequence[QueryRecord]) -> list[QueryRecord]:
    """The queries, oldest first, without those that were continued or repeated within seconds on the same interface."""
    texts = [record.query.lstrip().casefold() for record in records]
    return [record for position, record in enumerate(records) if not _is_unfinished(records, texts, position)]


def _is_unfinished(records: Sequence[QueryRecord], texts: Sequence[str], position: int) -> bool:
    record, text = records[position], texts[position]
    if record.interface not in _TYPED_INTERFACES:
        return False
    for next_position in islice(range(position + 1, len(records)), _MAX_LOOKAHEAD):
        later = records[next_position]
        if later.at - record.at > _TYPING_WINDOW_S:
            return False
        if later.interface == record.interface and texts[next_position].startswith(text):
            return True
    return False


@dataclass(frozen=True, slots=True)
class QueryStats:
    """Statistics of one query, ignoring case and spaces; shown as last written."""

    query: str
    count: int
    mean_hits: float
    best_score: float
    without_result: int
    """How many of its results had no hit, or no relevant one."""
    filtered: int
    """How many of those without a result had a filter, which may be the reason."""
    did_you_mean: str


@dataclass(frozen=True, slots=True)
class SlowQuery:
    """The slowest search of one query."""

    query: str
    ms: float
    at: datetime
    mode: str
    degraded: bool


@dataclass(frozen=True, slots=True)
class SynonymProposal:
    """A rule for the setting `synonyms`, and how many queries without a result were followed by one that it would have
    made of them."""

    rule: str
    count: int


@dataclass(frozen=True, slots=True)
class PageReach:
    """Which findable pages were shown by results with something relevant."""

    indexed: int
    never_found: int
    never: tuple[str, ...]
    """The first of those, by path."""
    often: tuple[tuple[str, int], ...]
    """The pages shown most often, with counts."""


@dataclass(frozen=True, slots=True)
class QueryReport:
    """Searches in one wiki in a period. Only `unfinished` counts queries that were still being typed."""

    since: datetime
    until: datetime
    logging: bool
    """Whether searches are recorded now."""
    searches: int
    unfinished: int
    queries: int
    interfaces: Mapping[str, int]
    without_result: int
    degraded: int
    lost: int
    damaged_at: datetime | None
    p50_ms: float
    p95_ms: float
    frequent: tuple[QueryStats, ...]
    unanswered: tuple[QueryStats, ...]
    slow: tuple[SlowQuery, ...]
    synonyms: tuple[SynonymProposal, ...]
    pages: PageReach | None
    """None if there is no index."""


@dataclass(frozen=True, slots=True)
class ReportPeriod:
    """The period of a report, and the state of the log."""

    since: datetime
    until: datetime
    logging: bool
    damaged_at: datetime | None = None


def build_report(
    records: Sequence[QueryRecord], paths: Collection[str] | None, period: ReportPeriod, limit: int
) -> QueryReport:
    """Build the report from the records, oldest first. Lists have at most `limit` rows."""
    finished = drop_unfinished_queries(records)
    groups: dict[str, list[QueryRecord]] = {}
    for record in finished:
        groups.setdefault(normalize_query(record.query), []).append(record)
    queries = sorted(
        map(_summarize_query, groups.values()), key=lambda query: (-query.count, normalize_query(query.query))
    )
    unanswered = [query for query in queries if query.without_result]
    times = sorted(record.ms for record in records)
    return QueryReport(
        since=period.since,
        until=period.until,
        logging=period.logging,
        searches=len(finished),
        unfinished=len(records) - len(finished),
        queries=len(groups),
        interfaces=dict(sorted(Counter(record.interface for record in finished).items())),
        without_result=sum(query.without_result for query in queries),
        degraded=sum(record.degraded for record in records),
        lost=sum(record.lost for record in records),
        damaged_at=period.damaged_at,
        p50_ms=_get_percentile(times, 0.5),
        p95_ms=_get_percentile(times, 0.95),
        frequent=tuple(queries[:limit]),
        unanswered=tuple(sorted(unanswered, key=lambda query: -query.without_result)[:limit]),
        slow=_find_slowest(records, limit),
        synonyms=propose_synonyms(finished)[:limit],
        pages=None if paths is None else _build_page_reach(finished, paths, limit),
    )


def normalize_query(query: str) -> str:
    """The query without case and extra spaces, to group equal queries."""
    return _normalize_spaces(query.casefold())


def _normalize_spaces(query: str) -> str:
    return " ".join(query.split())


def propose_synonyms(records: Sequence[QueryRecord]) -> tuple[SynonymProposal, ...]:
    """Words that were replaced by others within a minute, after which the query had a result. Records are oldest first.

    The log does not identify people. So two queries without a common word count only if it happened twice.
    """
    counts: Counter[str] = Counter()
    doubtful: set[str] = set()
    for position, record in enumerate(records):
        later = next((each for each in records[position + 1 :][:_MAX_LOOKAHEAD] if _is_retry(record, each)), None)
        if later is None or has_result(record):
            continue
        words, others = _list_words(record.query), _list_words(later.query)
        old = [word for word in words if word not in others]
        new = [word for word in others if word not in words]
        if 0 < len(old) <= _MAX_SYNONYM_WORDS and 0 < len(new) <= _MAX_SYNONYM_WORDS:
            rule = f"{' '.join(old)} = {' '.join(new)}"
            counts[rule] += 1
            if len(old) == len(words):
                doubtful.add(rule)
    proposals = [SynonymProposal(rule, count) for rule, count in counts.items() if count > 1 or rule not in doubtful]
    return tuple(sorted(proposals, key=lambda proposal: (-proposal.count, proposal.rule)))


def _is_retry(record: QueryRecord, later: QueryRecord) -> bool:
    is_near = later.interface == record.interface and later.at - record.at <= _RETRY_WINDOW_S
    return is_near and has_result(later) and not later.did_you_mean


def has_result(record: QueryRecord) -> bool:
    """Whether a search had a relevant hit."""
    return bool(record.hits) and not record.nothing_relevant


def _list_words(query: str) -> list[str]:
    return [word for word in TOKEN_PATTERN.findall(query.casefold()) if not is_stopword(word)]


def _summarize_query(records: Sequence[QueryRecord]) -> QueryStats:
    unanswered = [record for record in records if not has_result(record)]
    return QueryStats(
        query=_normalize_spaces(records[-1].query),
        count=len(records),
        mean_hits=sum(record.hits for record in records) / len(records),
        best_score=max(record.score for record in records),
        without_result=len(unanswered),
        filtered=sum(record.filtered for record in unanswered),
        did_you_mean=next((record.did_you_mean for record in reversed(records) if record.did_you_mean), ""),
    )


def _find_slowest(records: Sequence[QueryRecord], limit: int) -> tuple[SlowQuery, ...]:
    slowest: dict[str, QueryRecord] = {}
    for record in sorted(records, key=lambda record: -record.ms):
        slowest.setdefault(normalize_query(record.query), record)
        if len(slowest) == limit:
            break
    return tuple(
        SlowQuery(_normalize_spaces(record.query), record.ms, when, record.mode, record.degraded)
        for record in slowest.values()
        for when in (datetime.fromtimestamp(record.at, UTC),)
    )


def _build_page_reach(records: Sequence[QueryRecord], paths: Collection[str], limit: int) -> PageReach:
    # If nothing is relevant, the nearest pages are shown anyway; they do not count as found.
    counts = Counter(path for record in records if not record.nothing_relevant for path in record.pages)
    never = sorted(path for path in paths if path not in counts)
    # Pages that were deleted since are left out.
    existing = [(path, count) for path, count in counts.items() if path in paths]
    often = sorted(existing, key=lambda page: (-page[1], page[0]))
    return PageReach(len(paths), len(never), tuple(never[:limit]), tuple(often[:limit]))


def _get_percentile(sorted_values: Sequence[float], fraction: float) -> float:
    """The smallest value that at least this fraction of the values does not exceed."""
    return sorted_values[max(0, ceil(fraction * len(sorted_values)) - 1)] if sorted_values else 0.0
