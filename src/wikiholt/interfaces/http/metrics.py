"""Prometheus metrics. Labels are routes, methods and statuses: no user input and no wiki name."""

from collections.abc import Callable, Iterator
from typing import ClassVar

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from wikiholt.domain.protocols import VectorEngine
from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.scheduler.wiki_records import SchedulerCounters
from wikiholt.wikis.query_log import QueryLogWriter
from wikiholt.wikis.service import WikiService

_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ServiceMetrics:
    """Request metrics of one application, and the registry of all its metrics."""

    def __init__(self, process_registry: CollectorRegistry | None = None) -> None:
        """`process_registry` is for a process of several, whose request metrics have shared values: it gets the metrics
        of the process that have none."""
        self.registry = CollectorRegistry()
        self._process_registry = process_registry or self.registry
        add_python_collectors(self._process_registry)
        request_registry = self.registry if process_registry is None else None
        labels = ("route", "method", "status")
        self._requests = Counter("wikiholt_requests", "Requests served", labels, registry=request_registry)
        self._durations = Histogram(
            "wikiholt_request_seconds",
            "Request duration in seconds",
            ("route",),
            buckets=_DURATION_BUCKETS_S,
            registry=request_registry,
        )
        self._untrusted_headers = Counter(
            "wikiholt_untrusted_identity_headers",
            "Names of persons that were ignored, because no trusted proxy sent them",
            registry=request_registry,
        )

    def count_untrusted_header(self) -> None:
        self._untrusted_headers.inc()

    def add_process_collector(self, collector: Collector) -> None:
        """Add metrics that each process of a service has."""
        self._process_registry.register(collector)

    def record_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count one request; status 0 means that the client disconnected before the response."""
        self._requests.labels(route, method if method in _KNOWN_METHODS else "other", str(status)).inc()
        self._durations.labels(route).observe(seconds)


def add_python_collectors(registry: CollectorRegistry) -> None:
    """Add the metrics of the Python process itself."""
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)


def make_process_collectors(service: WikiService) -> list[Collector]:
    """The collectors for the parts of a service in this process."""
    collectors: list[Collector] = []
    if service.query_log_writer is not None:
        collectors.append(QueryLogCollector(service.query_log_writer))
    if service.vector_engine is not None:
        collectors.append(VectorEngineCollector(service.vector_engine))
    if service.databases is not None:
        collectors.append(DatabaseCollector(service.databases))
    return collectors


class VectorEngineCollector(Collector):
    """Metrics of the external vector engine, read on scrape."""

    def __init__(self, engine: VectorEngine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        name = f"wikiholt_{self._engine.name}"
        yield GaugeMetricFamily(f"{name}_up", "Whether the last request to it succeeded", float(self._engine.is_up))
        for counter, (about, count) in self._engine.get_metrics().items():
            yield CounterMetricFamily(f"{name}_{counter}", f"{about} since the start", count)


class DatabaseCollector(Collector):
    """Metrics of the index databases by their configured names, read on scrape without a query."""

    def __init__(self, databases: DatabaseAdmin) -> None:
        self._databases = databases

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("wikiholt_database_up", "Whether the last request to it succeeded", labels=("database",))
        for name, is_up in self._databases.get_availability().items():
            up.add_metric((name,), float(is_up))
        yield up
        for name, count in self._databases.get_metrics().items():
            yield GaugeMetricFamily(f"wikiholt_database_{name}", f"Current value in this process: {name}", count)
        about = "Statements that exceeded the lock or statement timeout since the start"
        timeouts = CounterMetricFamily("wikiholt_database_timeouts", about, labels=("kind",))
        for kind, count in self._databases.get_timeout_counts().items():
            timeouts.add_metric((kind,), count)
        yield timeouts
        about = "Connections that the server refused since the start: too many, or a login"
        refusals = CounterMetricFamily("wikiholt_database_refusals", about, labels=("reason",))
        for reason, count in self._databases.get_refusal_counts().items():
            refusals.add_metric((reason,), count)
        yield refusals


class QueryLogCollector(Collector):
    """Numbers of logged searches of all wikis; no queries."""

    def __init__(self, writer: QueryLogWriter) -> None:
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        for name, about in (("written", "Logged searches"), ("lost", "Searches that could not be logged")):
            count = getattr(self._writer, name)
            yield CounterMetricFamily(f"wikiholt_queries_{name}", f"{about} since the start", count)


class SchedulerCollector(Collector):
    """Counters and gauges of the scheduler, read on scrape."""

    _GAUGES: ClassVar = {
        "wikis": "Registered wikis",
        "waiting": "Wikis that wait for a sync",
        "running": "Wikis that are being synced",
        "missing": "Wikis whose repository is missing",
        "failing": "Wikis whose last sync failed",
        "repairing": "Wikis whose index is damaged and is being repaired",
        "broken": "Wikis whose index could not be repaired",
    }
    _COUNTERS: ClassVar = {
        "head_checks": "HEAD checks",
        "syncs": "Completed syncs",
        "pauses": "Syncs paused for another wiki",
        "failures": "Failed syncs",
        "fetches": "Fetches from remote repositories",
        "notifications": "Change notifications",
        "reindexes": "Requested reindexes",
        "backups": "Scheduled backups",
        "backup_failures": "Failed scheduled backups",
        "checks": "Complete checks of an index",
    }

    def __init__(self, get_counters: Callable[[], SchedulerCounters]) -> None:
        self._get_counters = get_counters

    def collect(self) -> Iterator[Metric]:
        counters = self._get_counters()
        for name, about in self._GAUGES.items():
            yield GaugeMetricFamily(f"wikiholt_scheduler_{name}", about, getattr(counters, name))
        for name, about in self._COUNTERS.items():
            yield CounterMetricFamily(f"wikiholt_scheduler_{name}", f"{about} since the start", getattr(counters, name))
