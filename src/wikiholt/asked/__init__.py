"""What people asked of a wiki: written down beside the searches, if the operator wants that, and reported."""

from wikiholt.asked.diary import QueryBuffer, QueryLogWriter
from wikiholt.asked.entries import make_record
from wikiholt.asked.queries import WikiQueryLog
from wikiholt.asked.report import QueryStats, PageReach, QueryReport, SlowQuery, build_report

__all__ = [
    "QueryStats",
    "QueryBuffer",
    "PageReach",
    "WikiQueryLog",
    "QueryReport",
    "QueryLogWriter",
    "SlowQuery",
    "build_report",
    "make_record",
]
