"""What the core asks of where searches are written down."""

from collections.abc import Sequence
from typing import Protocol

from wikiholt.model import QueryRetention, QueryRecords, QueryRecord


class QueryLog(Protocol):
    """What was searched for in one wiki. It was made for one wiki and knows no other. Safe to use from many threads.

    All may raise Busy, StorageRefused or DatabaseAway, and others of IndexFault; what was committed stays.
    """

    def write(self, records: Sequence[QueryRecord], retention: QueryRetention) -> None:
        """Add these, and forget what is out of bounds, in one transaction; a damaged log is begun anew.

        Of a wiki of which nothing is here nothing is written: it was removed.
        """

    def read(self, since: float) -> QueryRecords | None:
        """What was written since then; None where nothing was ever written."""

    def trim(self, retention: QueryRetention) -> None:
        """Forget what is out of bounds."""

    def clear(self) -> int:
        """Forget everything; how many entries that were."""
