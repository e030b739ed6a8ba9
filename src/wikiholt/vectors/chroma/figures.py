"""What is counted of Chroma. No figure belongs to a wiki."""

import threading
from collections.abc import Mapping

METRIC_DESCRIPTIONS = {
    "queries": "searches answered with Chroma's help",
    "fallbacks": "searches answered by exact scores because Chroma was away, slow or wrong",
    "timeouts": "requests that took too long",
    "failures": "requests that failed otherwise",
    "starts": "child processes started by this process",
    "crashes": "child processes of this process that ended by a signal or with an error",
    "kills": "child processes ended because they hung",
    "checks": "collections compared with the truth",
    "repairs": "collections in which the comparison found something to mend",
    "rebuilds": "collections filled anew",
    "renewals": "directories set aside",
    "rows_written": "rows written to collections",
    "rows_removed": "rows removed from collections",
}


class ChromaMetrics:
    """Counters that only grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(METRIC_DESCRIPTIONS, 0)

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def get_counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)
