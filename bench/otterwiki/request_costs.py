"""Adds to a response what its request took: processor time, and time in hooks of plugins."""

import resource
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

CPU_HEADER = "X-Bench-Cpu-Ms"
"""Processor time of the thread that answers, and of the child processes that ended meanwhile."""
HOOKS_HEADER = "X-Bench-Hooks-Ms"
TOTAL_HEADER = "X-Bench-Total-Cpu-Ms"
"""Processor time of all threads and child processes of the worker since its start."""


def measure_requests(app: Any) -> Callable[..., Iterable[bytes]]:
    """The WSGI application with the headers; requests are answered completely before their response starts."""
    from otterwiki.plugins import plugin_manager

    hooks = threading.local()

    def begin_hook(*_: object) -> None:
        hooks.began = time.perf_counter()

    def finish_hook(*_: object) -> None:
        hooks.took = getattr(hooks, "took", 0.0) + time.perf_counter() - hooks.began

    plugin_manager.add_hookcall_monitoring(begin_hook, finish_hook)

    def handle(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        hooks.took = 0.0
        began = time.thread_time() + _read_child_cpu_s()
        started: list[Any] = []
        body = list(app(environ, lambda *parts: started.append(parts)))
        status, headers, *rest = started[0]
        children = _read_child_cpu_s()
        took = {
            CPU_HEADER: time.thread_time() + children - began,
            HOOKS_HEADER: hooks.took,
            TOTAL_HEADER: time.process_time() + children,
        }
        start_response(status, [*headers, *((name, f"{each * 1e3:.3f}") for name, each in took.items())], *rest)
        return body

    return handle


def _read_child_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
