"""The child processes of `wikiholt serve` with several processes: workers, which answer requests, and the scheduler."""

import logging
import os
import shutil
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from threading import Event, Thread

from wikiholt.app.bootstrap import WorkerParts, open_application, raise_file_limit
from wikiholt.app.settings.definitions import Settings
from wikiholt.interfaces.cli.http_server import STOP_TIMEOUT_S, Server, build_config, check_service, load_model
from wikiholt.interfaces.cli.listeners import BACKLOG
from wikiholt.interfaces.cli.local_server import serve_local_searches
from wikiholt.interfaces.cli.serve_command import report_progress
from wikiholt.interfaces.cli.supervisor import (
    BUCKETS_FILE,
    COUNTERS_FILE,
    DRAIN,
    DRAIN_LIMIT_S,
    LISTENS,
    WARM,
    ChildRole,
    ChildSpec,
)
from wikiholt.interfaces.http.metrics import make_process_collectors
from wikiholt.interfaces.http.shared_metrics import SharedMetrics, make_publisher
from wikiholt.scheduler.worker_link import SchedulerLink, WorkerRequests
from wikiholt.wikis.rate_limit import BucketTable

_log = logging.getLogger(__name__)

_SIGNAL_POLL_S = 1.0


def run_child(settings: Settings, roots: Sequence[Path], spec: ChildSpec, *, as_json: bool) -> None:
    """Run as a child of the supervisor until a signal, or until the supervisor ends."""
    raise_file_limit()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor decides what it means
    control = socket.socket(fileno=spec.control)
    if spec.role is ChildRole.SCHEDULER:
        _run_scheduler(settings, roots, spec, control, as_json=as_json)
    else:
        _run_worker(settings, roots, spec, control)


def _run_worker(settings: Settings, roots: Sequence[Path], spec: ChildSpec, control: socket.socket) -> None:
    directory = Path(spec.directory)
    link = SchedulerLink(spec.pipe, directory / COUNTERS_FILE)
    buckets = BucketTable(directory / BUCKETS_FILE)
    parts = WorkerParts(link, buckets.open_buckets, link.get_counters)
    application = open_application(settings, roots, worker=parts)
    metrics = SharedMetrics(directory, spec.name)
    listener = socket.socket(fileno=spec.listener)
    local_listener = socket.socket(fileno=spec.local_listener) if spec.local_listener is not None else None

    def on_ready() -> None:
        listener.listen(BACKLOG)  # uvicorn has set another one
        control.send(LISTENS)
        Thread(target=warm_up, name="load-model", daemon=True).start()

    def warm_up() -> None:
        load_model(application)
        control.send(WARM)

    # A worker accepts one connection at a time, so that others get their share of many.
    server = Server(build_config(application, metrics, accept_at_once=1), on_ready)
    _watch_supervisor(control, directory, lambda: server.drain(DRAIN_LIMIT_S), _send_sigterm)
    metrics.publisher.start()
    try:
        with serve_local_searches(application, local_listener) if local_listener is not None else nullcontext():
            server.run(sockets=[listener])
    finally:
        application.service.close()
        metrics.publisher.close()


def _run_scheduler(
    settings: Settings, roots: Sequence[Path], spec: ChildSpec, control: socket.socket, *, as_json: bool
) -> None:
    directory = Path(spec.directory)
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _, __: stop.set())
    application = open_application(settings, roots, publishes_state=True)
    scheduler = application.scheduler
    requests = WorkerRequests(spec.pipe, directory / COUNTERS_FILE, scheduler)
    publisher = make_publisher(directory, spec.name, make_process_collectors(application.service))
    try:
        check_service(application, roots, as_json=as_json)
        _watch_supervisor(control, directory, stop.set, stop.set)
        scheduler.start()
        requests.start()
        publisher.start()
        control.send(LISTENS)
        with nullcontext() if as_json else report_progress(scheduler.get_progress):
            # Without a time limit, a signal that arrives just before the wait would not be noticed.
            while not stop.wait(_SIGNAL_POLL_S):
                pass
        requests.close()
        if not scheduler.stop(STOP_TIMEOUT_S):
            _log.warning("a sync or fetch was interrupted; committed batches are kept")
        publisher.close()
    finally:
        application.service.close()


def _watch_supervisor(
    control: socket.socket, directory: Path, drain: Callable[[], None], end: Callable[[], None]
) -> None:
    """Drain when the supervisor asks for it, and end when it has ended."""

    def watch() -> None:
        while received := control.recv(16):
            if DRAIN in received:
                drain()
        _log.error("the supervisor has ended; this process ends too")
        shutil.rmtree(directory, ignore_errors=True)
        end()

    Thread(target=watch, name="supervisor", daemon=True).start()


def _send_sigterm() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
