"""What the service counts. Labels are routes, methods and statuses: nothing a visitor typed, and no wiki's name."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wikiholt.asked import Scribe
from wikiholt.keeper import Counters
from wikiholt.ports import Databases, VectorEngine

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """What one service counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._requests = Counter(
            "wikiholt_requests", "Requests answered", ("route", "method", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "wikiholt_request_seconds", "Seconds per request", ("route",), buckets=_SECONDS, registry=self.registry
        )

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request; status 0 is one whose client left before the answer."""
        self._requests.labels(route, method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(route).observe(seconds)


class Leaning(Collector):
    """What vector caches lean on, read when it is asked for."""

    def __init__(self, engine: VectorEngine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        name = f"wikiholt_{self._engine.name}"
        yield GaugeMetricFamily(f"{name}_up", "Whether it answered when it was last needed", float(self._engine.up))
        for counter, (about, count) in self._engine.figures().items():
            yield CounterMetricFamily(f"{name}_{counter}", f"Since the start: {about}", count)


class Standing(Collector):
    """The databases that hold indexes, by the operator's names for them, read when it is asked for; asks none."""

    def __init__(self, databases: Databases) -> None:
        self._databases = databases

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("wikiholt_database_up", "Whether it answered when last needed", labels=("database",))
        for name, well in self._databases.up().items():
            up.add_metric((name,), float(well))
        yield up
        for name, count in self._databases.figures().items():
            yield GaugeMetricFamily(f"wikiholt_database_{name}", f"Now, of this process: {name}", count)
        about = "Since the start: statements that waited for a lock, or ran, for too long"
        ended = CounterMetricFamily("wikiholt_database_timeouts", about, labels=("kind",))
        for kind, count in self._databases.timeouts().items():
            ended.add_metric((kind,), count)
        yield ended


class Asking(Collector):
    """How many searches were written down, of all wikis that have that; never which."""

    def __init__(self, scribe: Scribe) -> None:
        self._scribe = scribe

    def collect(self) -> Iterator[Metric]:
        for name, about in (("written", "written down"), ("lost", "that could not be written down")):
            counted = getattr(self._scribe, name)
            yield CounterMetricFamily(f"wikiholt_queries_{name}", f"Since the start: searches {about}", counted)


class Keeping(Collector):
    """What the keeper has done, read when it is asked for."""

    _NOW = ("wikis", "waiting", "running", "missing", "failing", "healing", "broken")
    _EVER = (
        "looks",
        "syncs",
        "pauses",
        "failures",
        "fetches",
        "wakes",
        "reindexes",
        "backups",
        "backup_failures",
        "checks",
    )

    def __init__(self, counters: Callable[[], Counters]) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        now = self._counters()
        for name in self._NOW:
            yield GaugeMetricFamily(f"wikiholt_keeper_{name}", f"Wikis now: {name}", getattr(now, name))
        for name in self._EVER:
            yield CounterMetricFamily(f"wikiholt_keeper_{name}", f"Since the start: {name}", getattr(now, name))
