"""What was searched for in a wiki as JSON."""

from datetime import UTC, datetime

from typing_extensions import TypedDict

from wikiholt.asked import AskedQuery, FoundPages, QueryReport, SlowQuery
from wikiholt.surfaces.documents.moments import moment
from wikiholt.surfaces.documents.names import AS_STORED, Names


class AskedQueryDocument(TypedDict):
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


class PageFoundDocument(TypedDict):
    """A page, and how many answers showed it."""

    path: str
    count: int


class FoundPagesDocument(TypedDict):
    """Which pages answers showed; `never_found` are the first of `never_found_total`, by path."""

    indexed: int
    never_found_total: int
    never_found: list[str]
    found_most: list[PageFoundDocument]


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
    frequent: list[AskedQueryDocument]
    without_result: list[AskedQueryDocument]
    slow: list[SlowQueryDocument]
    pages: FoundPagesDocument | None


def query_report_document(slug: str, report: QueryReport, names: Names = AS_STORED) -> QueryReportDocument:
    return {
        "wiki": slug,
        "since": moment(report.since),
        "until": moment(report.until),
        "logging": report.logging,
        "searches": report.searches,
        "beginnings": report.beginnings,
        "queries": report.queries,
        "surfaces": dict(report.surfaces),
        "without_result_total": report.without_result,
        "degraded": report.degraded,
        "lost": report.lost,
        "damaged_at": moment(report.damaged_at),
        "p50_ms": round(report.p50_ms, 3),
        "p95_ms": round(report.p95_ms, 3),
        "frequent": [_asked(each) for each in report.frequent],
        "without_result": [_asked(each) for each in report.unanswered],
        "slow": [_slow(each) for each in report.slow],
        "pages": _pages(report.pages, names) if report.pages else None,
    }


def _asked(asked: AskedQuery) -> AskedQueryDocument:
    return {
        "query": asked.query,
        "count": asked.count,
        "mean_hits": round(asked.mean_hits, 2),
        "best_score": asked.best_score,
        "without_result": asked.without_result,
        "without_result_filtered": asked.filtered,
        "did_you_mean": asked.did_you_mean or None,
    }


def _slow(slow: SlowQuery) -> SlowQueryDocument:
    return {
        "query": slow.query,
        "ms": slow.ms,
        "at": moment(datetime.fromtimestamp(slow.at, UTC)),
        "mode": slow.mode,
        "degraded": slow.degraded,
    }


def _pages(pages: FoundPages, names: Names) -> FoundPagesDocument:
    return {
        "indexed": pages.indexed,
        "never_found_total": pages.never_found,
        "never_found": [names.shown(path) for path in pages.never],
        "found_most": [{"path": names.shown(path), "count": count} for path, count in pages.often],
    }
