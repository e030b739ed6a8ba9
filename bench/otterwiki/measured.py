"""Adds to a response what its request took: processor time of its thread, and time in hooks of plugins.

Work in other threads and processes is not in it.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

CPU_HEADER = "X-Bench-Cpu-Ms"
HOOKS_HEADER = "X-Bench-Hooks-Ms"


def measure_requests(app: Any) -> Callable[..., Iterable[bytes]]:
    """The WSGI application with the headers; requests are answered completely before their response starts."""
    from otterwiki.plugins import plugin_manager

    hooks = threading.local()

    def begin_hook(*_: object) -> None:
        hooks.began = time.perf_counter()

    def end_hook(*_: object) -> None:
        hooks.took = getattr(hooks, "took", 0.0) + time.perf_counter() - hooks.began

    plugin_manager.add_hookcall_monitoring(begin_hook, end_hook)

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        hooks.took = 0.0
        began = time.thread_time()
        held: list[Any] = []
        body = list(app(environ, lambda *parts: held.append(parts)))
        status, headers, *rest = held[0]
        took = {CPU_HEADER: time.thread_time() - began, HOOKS_HEADER: hooks.took}
        start_response(status, [*headers, *((name, f"{each * 1e3:.3f}") for name, each in took.items())], *rest)
        return body

    return answer
