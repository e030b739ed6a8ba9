"""Prometheus metrics of one process, or of a service of several processes.

Labels are routes, methods and statuses: no user input and no wiki name.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    values,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from wikiholt.domain.storage_protocols import DatabaseAdmin
from wikiholt.sync.wiki_records import SchedulerCounters
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
        self.untrusted_headers = Counter(
            "wikiholt_untrusted_identity_headers",
            "Names of persons that were ignored, because no trusted proxy sent them",
            registry=request_registry,
        )

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


class _FunctionCollector(Collector):
    """Metrics that a function reads on scrape."""

    def __init__(self, collect: Callable[[], Iterator[Metric]]) -> None:
        self._collect = collect

    def collect(self) -> Iterator[Metric]:
        return self._collect()


def make_process_collectors(service: WikiService) -> list[Collector]:
    """The collectors for the parts of a service in this process."""
    collectors: list[Collector] = []
    if (writer := service.query_log_writer) is not None:
        collectors.append(_FunctionCollector(lambda: _collect_query_log(writer)))
    if service.vector_engine is not None:
        collectors.append(_FunctionCollector(lambda: _collect_vector_engine(service)))
    if (databases := service.databases) is not None:
        collectors.append(_FunctionCollector(lambda: _collect_databases(databases)))
    return collectors


def _collect_query_log(writer: QueryLogWriter) -> Iterator[Metric]:
    """Numbers of logged searches of all wikis; no queries."""
    for name, about in (("written", "Logged searches"), ("lost", "Searches that could not be logged")):
        yield CounterMetricFamily(f"wikiholt_queries_{name}", f"{about} since the start", getattr(writer, name))


def _collect_vector_engine(service: WikiService) -> Iterator[Metric]:
    engine = service.vector_engine
    assert engine is not None
    name = f"wikiholt_{engine.name}"
    yield GaugeMetricFamily(f"{name}_up", "Whether the last request to it succeeded", float(engine.is_up))
    for counter, (about, count) in engine.get_metrics().items():
        yield CounterMetricFamily(f"{name}_{counter}", f"{about} since the start", count)


def _collect_databases(databases: DatabaseAdmin) -> Iterator[Metric]:
    """The index databases by their configured names, without a query."""
    up = GaugeMetricFamily("wikiholt_database_up", "Whether the last request to it succeeded", labels=("database",))
    yield _add_samples(up, databases.get_availability())
    for name, count in databases.get_metrics().items():
        yield GaugeMetricFamily(f"wikiholt_database_{name}", f"Current value in this process: {name}", count)
    about = "Statements that exceeded the lock or statement timeout since the start"
    timeouts = CounterMetricFamily("wikiholt_database_timeouts", about, labels=("kind",))
    yield _add_samples(timeouts, databases.get_timeout_counts())
    about = "Connections that the server refused since the start: too many, or a login"
    refusals = CounterMetricFamily("wikiholt_database_refusals", about, labels=("reason",))
    yield _add_samples(refusals, databases.get_refusal_counts())


def _add_samples(family: GaugeMetricFamily | CounterMetricFamily, samples: Mapping[str, float]) -> Metric:
    for label, value in samples.items():
        family.add_metric((label,), float(value))
    return family


def make_scheduler_collector(get_counters: Callable[[], SchedulerCounters]) -> Collector:
    """The collector for counters and gauges of the scheduler."""
    return _FunctionCollector(lambda: _collect_scheduler(get_counters()))


def _collect_scheduler(counters: SchedulerCounters) -> Iterator[Metric]:
    for counter in fields(counters):
        name, about, value = (
            f"wikiholt_scheduler_{counter.name}",
            counter.metadata["text"],
            getattr(counters, counter.name),
        )
        if counter.metadata["is_gauge"]:
            yield GaugeMetricFamily(name, about, value)
        else:
            yield CounterMetricFamily(name, f"{about} since the start", value)


# Metrics of a service of several processes: each writes its values into memory-mapped files of one directory. A process
# has a name, which the next process may take over: it continues the counters of the last one, so they survive a crash.
# Whichever process is asked adds up the files of all.


_INTERVAL_S = 1.0
"""Seconds between two copies of the counters that other parts of a process keep."""
_LOWEST_VALUE_METRICS = ("process_start_time_seconds", "process_max_fds", "python_info")
"""Gauges whose sum means nothing; so are those that end with `_up`."""


class SharedMetrics(ServiceMetrics):
    """The metrics of one worker process; its registry has the sums of all processes."""

    def __init__(self, directory: Path, name: str) -> None:
        use_shared_values(directory, name)
        registry = CollectorRegistry()
        super().__init__(registry)
        MultiProcessCollector(self.registry, str(directory))  # type: ignore[no-untyped-call]
        self.publisher = MetricsPublisher(registry)


def make_publisher(directory: Path, name: str, collectors: list[Collector]) -> "MetricsPublisher":
    """The publisher of a process that answers no requests."""
    use_shared_values(directory, name)
    registry = CollectorRegistry()
    add_python_collectors(registry)
    for collector in collectors:
        registry.register(collector)
    return MetricsPublisher(registry)


def use_shared_values(directory: Path, name: str) -> None:
    """Let all metrics that this process creates from now on have their values in files of the directory."""
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
    values.ValueClass = values.MultiProcessValue(lambda: name)  # type: ignore[no-untyped-call]


class MetricsPublisher:
    """Copies the metrics of collectors to shared values, every second and on close. Other metrics are there at once."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._values: dict[tuple[str, str], tuple[Any, float]] = {}
        self._lock = Lock()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self.publish()
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self.publish()

    def publish(self) -> None:
        with self._lock:
            for family in self._registry.collect():
                if family.type in ("counter", "gauge"):
                    self._publish_family(family)

    def _run(self) -> None:
        while not self._stop.wait(_INTERVAL_S):
            self.publish()

    def _publish_family(self, family: Metric) -> None:
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue
            key = sample.name, repr(sample.labels)
            if key not in self._values:
                lowest = family.name in _LOWEST_VALUE_METRICS or family.name.endswith("_up")
                mode = "livemin" if lowest else "livesum"
                labels = tuple(sample.labels), tuple(sample.labels.values())
                value = values.ValueClass(family.type, family.name, sample.name, *labels, family.documentation, mode)
                # A counter goes on from the value of the process that had this name before.
                self._values[key] = value, value.get() if family.type == "counter" else 0.0
            value, base = self._values[key]
            value.set(base + sample.value)
