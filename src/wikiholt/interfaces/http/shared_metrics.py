"""Metrics of a service of several processes: each writes its values into memory-mapped files of one directory.

A process has a name, which the next process may take over: it continues the counters of the last one, so they survive
a crash. Whichever process is asked adds up the files of all.
"""

import os
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry, values
from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.registry import Collector

from wikiholt.interfaces.http.metrics import ServiceMetrics, add_python_collectors

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
                value = _make_value(family, sample.name, sample.labels)
                # A counter goes on from the value of the process that had this name before.
                self._values[key] = value, value.get() if family.type == "counter" else 0.0
            value, base = self._values[key]
            value.set(base + sample.value)


def _make_value(family: Metric, name: str, labels: dict[str, str]) -> Any:
    lowest = family.name in _LOWEST_VALUE_METRICS or family.name.endswith("_up")
    mode = "livemin" if lowest else "livesum"
    return values.ValueClass(
        family.type, family.name, name, tuple(labels), tuple(labels.values()), family.documentation, mode
    )
