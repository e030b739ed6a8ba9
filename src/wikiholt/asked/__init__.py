"""What people asked of a wiki: written down beside the searches, if the operator wants that, and reported."""

from wikiholt.asked.diary import Diary, Scribe
from wikiholt.asked.entries import written_down
from wikiholt.asked.queries import Queries
from wikiholt.asked.report import AskedQuery, FoundPages, QueryReport, SlowQuery, reported

__all__ = [
    "AskedQuery",
    "Diary",
    "FoundPages",
    "Queries",
    "QueryReport",
    "Scribe",
    "SlowQuery",
    "reported",
    "written_down",
]
