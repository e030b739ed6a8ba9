"""What the service counts. Labels are routes, methods and statuses: nothing a visitor typed, and no wiki's name."""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wikiholt.domain.protocols import VectorEngine
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.scheduler.wiki_records import SchedulerCounters
from wikiholt.wikis.query_log import QueryLogWriter

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ServiceMetrics:
    """What one service counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._requests = Counter(
            "wikiholt_requests", "Requests answered", ("route", "method", "status"), registry=self.registry
        )
        self._durations = Histogram(
            "wikiholt_request_seconds",
            "Seconds per request",
            ("route",),
            buckets=_DURATION_BUCKETS_S,
            registry=self.registry,
        )

    def record_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request; status 0 is one whose client left before the answer."""
        self._requests.labels(route, method if method in _KNOWN_METHODS else "other", str(status)).inc()
        self._durations.labels(route).observe(seconds)


class VectorEngineCollector(Collector):
    """What vector caches lean on, read when it is asked for."""

    def __init__(self, engine: VectorEngine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        name = f"wikiholt_{self._engine.name}"
        yield GaugeMetricFamily(f"{name}_up", "Whether it answered when it was last needed", float(self._engine.is_up))
        for counter, (about, count) in self._engine.get_metrics().items():
            yield CounterMetricFamily(f"{name}_{counter}", f"Since the start: {about}", count)


class DatabaseCollector(Collector):
    """The databases that hold indexes, by the operator's names for them, read when it is asked for; asks none."""

    def __init__(self, databases: DatabaseAdmin) -> None:
        self._databases = databases

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("wikiholt_database_up", "Whether it answered when last needed", labels=("database",))
        for name, well in self._databases.get_availability().items():
            up.add_metric((name,), float(well))
        yield up
        for name, count in self._databases.get_metrics().items():
            yield GaugeMetricFamily(f"wikiholt_database_{name}", f"Now, of this process: {name}", count)
        about = "Since the start: statements that waited for a lock, or ran, for too long"
        ended = CounterMetricFamily("wikiholt_database_timeouts", about, labels=("kind",))
        for kind, count in self._databases.get_timeout_counts().items():
            ended.add_metric((kind,), count)
        yield ended


class QueryLogCollector(Collector):
    """How many searches were written down, of all wikis that have that; never which."""

    def __init__(self, writer: QueryLogWriter) -> None:
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        for name, about in (("written", "written down"), ("lost", "that could not be written down")):
            counted = getattr(self._writer, name)
            yield CounterMetricFamily(f"wikiholt_queries_{name}", f"Since the start: searches {about}", counted)


class SchedulerCollector(Collector):
    """What the keeper has done, read when it is asked for."""

    _GAUGES = ("wikis", "waiting", "running", "missing", "failing", "healing", "broken")
    _COUNTERS = (
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

    def __init__(self, get_counters: Callable[[], SchedulerCounters]) -> None:
        self._get_counters = get_counters

    def collect(self) -> Iterator[Metric]:
        now = self._get_counters()
        for name in self._GAUGES:
            yield GaugeMetricFamily(f"wikiholt_scheduler_{name}", f"Wikis now: {name}", getattr(now, name))
        for name in self._COUNTERS:
            yield CounterMetricFamily(f"wikiholt_scheduler_{name}", f"Since the start: {name}", getattr(now, name))
