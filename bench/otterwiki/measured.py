"""Adds the processor time of a request's thread to its response; work in other threads and processes is not in it."""

import time
from collections.abc import Callable, Iterable
from typing import Any

CPU_HEADER = "X-Bench-Cpu-Ms"


def measure_requests(app: Any) -> Callable[..., Iterable[bytes]]:
    """The WSGI application with the header; requests are answered completely before their response starts."""

    def answer(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        began = time.thread_time()
        held: list[Any] = []
        body = list(app(environ, lambda *parts: held.append(parts)))
        status, headers, *rest = held[0]
        took = (time.thread_time() - began) * 1e3
        start_response(status, [*headers, (CPU_HEADER, f"{took:.3f}")], *rest)
        return body

    return answer
