"""Limits the searches that run at once in a process.

Searches compute more than they wait. More of them than cores take longer each, because they wait for one another's
interpreter lock, and all together answer fewer requests.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

import anyio.to_thread
from anyio.lowlevel import RunVar

from wikiholt.embedding.idle_threads import count_available_cores
from wikiholt.interfaces.http.query_params import SearchParams

if TYPE_CHECKING:
    from wikiholt.interfaces.http.request_context import RequestContext

P = ParamSpec("P")
T = TypeVar("T")

MAX_COUNTED_S = 1.0
"""A search that takes longer no longer counts, so that a wiki whose disk does not answer delays no other for long."""
_slots: RunVar[anyio.CapacityLimiter] = RunVar("search_slots")


def limit_searches(endpoint: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Make an endpoint that searches asynchronous: it gets a thread when fewer than one per core run."""

    @wraps(endpoint)
    async def run(*args: P.args, **kwargs: P.kwargs) -> T:
        call = partial(endpoint, *args, **kwargs)
        context, params = cast("RequestContext", kwargs["context"]), kwargs["params"]
        waits_for_index = isinstance(params, SearchParams) and bool(params.fresh or params.at_least)
        if context.has_local_search and not waits_for_index:
            with context.search_load.count_search():
                return await _run_in_slot(call)
        return await anyio.to_thread.run_sync(call)

    return run


def count_waiting_requests() -> int:
    """The number of requests that wait for a thread or for other searches."""
    limiters = (anyio.to_thread.current_default_thread_limiter(), _get_slots())
    return sum(limiter.statistics().tasks_waiting for limiter in limiters)


async def _run_in_slot(call: Callable[[], T]) -> T:
    slots, holder = _get_slots(), object()
    try:
        slots.acquire_on_behalf_of_nowait(holder)  # the other form lets the event loop run first
    except anyio.WouldBlock:
        await slots.acquire_on_behalf_of(holder)

    def release() -> None:
        if not timer.cancelled():
            timer.cancel()
            slots.release_on_behalf_of(holder)

    timer = asyncio.get_running_loop().call_later(MAX_COUNTED_S, release)
    try:
        return await anyio.to_thread.run_sync(call)
    finally:
        release()


def _get_slots() -> anyio.CapacityLimiter:
    """The slots of the current event loop."""
    try:
        return _slots.get()
    except LookupError:
        _slots.set(anyio.CapacityLimiter(max(2, count_available_cores())))
        return _slots.get()
