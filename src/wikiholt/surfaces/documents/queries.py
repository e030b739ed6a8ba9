"""What was searched for in a wiki as JSON."""

from datetime import UTC, datetime

from typing_extensions import TypedDict

from wikiholt.asked import QueryStats, PageReach, QueryReport, SlowQuery
from wikiholt.surfaces.documents.moments import format_date
from wikiholt.surfaces.documents.names import STORED_PATHS, PathStyle


class QueryStatsDocument(TypedDict):
    """One query however it was written; `without_result` counts answers with no hit, or none clearly relevant."""

    query: str
    count: int
    mean_hits: float
    best_score: float
    without_result: int
    without_result_filtered: int
    did_you_mean: str | None


class SlowQueryDocument(TypedDict):
    """The slowest answer that one query had."""

    query: str
    ms: float
    at: str
    mode: str
    degraded: bool


class PageHitCountDocument(TypedDict):
    """A page, and how many answers showed it."""

    path: str
    count: int


class PageReachDocument(TypedDict):
    """Which pages answers showed; `never_found` are the first of `never_found_total`, by path."""

    indexed: int
    never_found_total: int
    never_found: list[str]
    found_most: list[PageHitCountDocument]


class QueryReportDocument(TypedDict):
    """What was searched for in one wiki; `beginnings`, of queries that were being typed, are no part of `searches`."""

    wiki: str
    since: str
    until: str
    logging: bool
    searches: int
    beginnings: int
    queries: int
    surfaces: dict[str, int]
    without_result_total: int
    degraded: int
    lost: int
    damaged_at: str | None
    p50_ms: float
    p95_ms: float
    frequent: list[QueryStatsDocument]
    without_result: list[QueryStatsDocument]
    slow: list[SlowQueryDocument]
    pages: PageReachDocument | None


def build_query_report_document(slug: str, report: QueryReport, path_style: PathStyle = STORED_PATHS) -> QueryReportDocument:
    return {
        "wiki": slug,
        "since": format_date(report.since),
        "until": format_date(report.until),
        "logging": report.logging,
        "searches": report.searches,
        "beginnings": report.beginnings,
        "queries": report.queries,
        "surfaces": dict(report.surfaces),
        "without_result_total": report.without_result,
        "degraded": report.degraded,
        "lost": report.lost,
        "damaged_at": format_date(report.damaged_at),
        "p50_ms": round(report.p50_ms, 3),
        "p95_ms": round(report.p95_ms, 3),
        "frequent": [_build_query_stats_document(each) for each in report.frequent],
        "without_result": [_build_query_stats_document(each) for each in report.unanswered],
        "slow": [_build_slow_query_document(each) for each in report.slow],
        "pages": _build_page_reach_document(report.pages, path_style) if report.pages else None,
    }


def _build_query_stats_document(stats: QueryStats) -> QueryStatsDocument:
    return {
        "query": stats.query,
        "count": stats.count,
        "mean_hits": round(stats.mean_hits, 2),
        "best_score": stats.best_score,
        "without_result": stats.without_result,
        "without_result_filtered": stats.filtered,
        "did_you_mean": stats.did_you_mean or None,
    }


def _build_slow_query_document(slow: SlowQuery) -> SlowQueryDocument:
    return {
        "query": slow.query,
        "ms": slow.ms,
        "at": format_date(datetime.fromtimestamp(slow.at, UTC)),
        "mode": slow.mode,
        "degraded": slow.degraded,
    }


def _build_page_reach_document(pages: PageReach, path_style: PathStyle) -> PageReachDocument:
    return {
        "indexed": pages.indexed,
        "never_found_total": pages.never_found,
        "never_found": [path_style.to_display_path(path) for path in pages.never],
        "found_most": [{"path": path_style.to_display_path(path), "count": count} for path, count in pages.often],
    }
