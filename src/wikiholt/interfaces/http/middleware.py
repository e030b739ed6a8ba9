"""The ASGI middleware that every request passes, and the limit on searches that run at once.

It removes /w/{slug} from the path, limits the body and the number of waiting requests, answers HEAD like GET, adds
common headers, records metrics, and turns unexpected exceptions into a 500 response without details.
"""

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar
from urllib.parse import unquote_to_bytes

import anyio.to_thread
from anyio.lowlevel import RunVar
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wikiholt.api.settings.definitions import Settings
from wikiholt.interfaces.http.metrics import ServiceMetrics
from wikiholt.interfaces.http.problem_details import make_error_response
from wikiholt.interfaces.http.responses import limit_body
from wikiholt.processor import count_available_cores
from wikiholt.wikis.rate_limit import Allowance

T = TypeVar("T")

_log = logging.getLogger(__name__)

SLUG_KEY = "wikiholt.slug"
ALLOWANCE_KEY = "wikiholt.allowance"
"""Keys in the ASGI scope: the slug in the path, and the remaining rate limit."""

_NEVER_REFUSED_PATHS = frozenset({"/healthz", "/api/v1/health", "/metrics"})
_OVERLOAD_RETRY_S = 1
_WIKI_PREFIX_PATTERN = re.compile(r"/w/([^/]*)(/.*)?", re.DOTALL)
_CSP = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_FIXED_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": _CSP,
}


class RequestMiddleware:
    """The outermost middleware of the application, apart from CORS."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        allow_cross_origin: bool,
        metrics: ServiceMetrics,
        make_failure_response: Callable[[Request], Response],
    ) -> None:
        self._app = app
        self._max_body_bytes = settings.limit_body_bytes
        self._max_waiting = settings.limit_waiting_requests
        self._workers = settings.serve_workers
        self._allow_cross_origin = allow_cross_origin
        self._make_failure_response = make_failure_response
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        scope = dict(scope)  # the server still needs the original method
        method, status = str(scope["method"]), 0

        async def send_response(message: Message) -> None:
            """Send a response with the common headers, and without its body for HEAD."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._add_headers(MutableHeaders(scope=message), scope.get(ALLOWANCE_KEY))
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        early_response = self._prepare_scope(scope) or self._refuse_if_overloaded(scope)
        try:
            if early_response is not None:
                await early_response(scope, receive, send_response)
            else:
                await self._app(scope, limit_body(scope, receive, self._max_body_bytes), send_response)
        except ClientDisconnect:
            _log.debug("client disconnected before the request was complete")
        except Exception:  # noqa: BLE001 - the client gets a response without details, the log gets the traceback
            # Log the route, not the URL: a URL may contain user input.
            _log.exception("request failed at %s", _get_route(scope))
            if not status:
                await self._make_failure_response(Request(scope))(scope, receive, send_response)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.record_request(_get_route(scope), method, status, seconds)

    def _prepare_scope(self, scope: Scope) -> Response | None:
        """Move the slug from the path to the scope, treat HEAD as GET, and redirect or refuse a path that needs it."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if match := _WIKI_PREFIX_PATTERN.fullmatch(path):
            scope[SLUG_KEY] = match[1]
            scope["root_path"] = f"{scope.get('root_path', '')}/w/{match[1]}"
            if match[2] is None:
                return RedirectResponse(f"{scope['root_path']}/", 308)
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
        return _refuse_undecodable_path(scope)

    def _refuse_if_overloaded(self, scope: Scope) -> Response | None:
        """The response to a request for which too many others wait; checks of the service are always answered."""
        limiters = (anyio.to_thread.current_default_thread_limiter(), _get_slots(self._workers).limiter)
        waiting = sum(limiter.statistics().tasks_waiting for limiter in limiters) + _get_slots(self._workers).queued
        if waiting < self._max_waiting or scope["path"] in _NEVER_REFUSED_PATHS:
            return None
        hint = f"Try again in {_OVERLOAD_RETRY_S} s."
        headers = {"Retry-After": str(_OVERLOAD_RETRY_S)}
        return make_error_response(503, "overloaded", "Too many requests are waiting.", hint, headers)

    def _add_headers(self, headers: MutableHeaders, allowance: Allowance | None) -> None:
        for name, value in _FIXED_HEADERS.items():
            headers.setdefault(name, value)
        if self._allow_cross_origin:
            headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        headers.add_vary_header("Authorization")
        if allowance is not None and allowance.limit:
            headers["RateLimit-Policy"] = f'"minute";q={allowance.limit};w=60'
            headers["RateLimit"] = f'"minute";r={allowance.remaining};t={math.ceil(allowance.reset_seconds)}'


def _refuse_undecodable_path(scope: Scope) -> Response | None:
    """The response to a path that is not UTF-8. The server replaces its bytes, so it would name another page."""
    if "\ufffd" in scope["path"]:
        try:
            unquote_to_bytes(scope.get("raw_path") or scope["path"]).decode()
        except UnicodeDecodeError:
            hint = "Encode it as UTF-8, then with percent signs."
            return make_error_response(400, "invalid-input", "The path is not UTF-8.", hint)
    return None


def _get_route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path_format", "none"))


# Searches compute more than they wait. More of them than cores take longer each, because they wait for one another's
# interpreter lock, and all together answer fewer requests.


MAX_COUNTED_S = 0.25
"""A search that takes longer no longer counts, so that a wiki whose disk does not answer delays no other for long."""
_MAX_THREADS = 40


class _SearchSlots:
    """Where the searches of one event loop run."""

    def __init__(self, count: int) -> None:
        self.limiter = anyio.CapacityLimiter(count)
        # Those of anyio let the event loop run several times more for each call.
        self.threads = ThreadPoolExecutor(_MAX_THREADS, "search")
        self.started = 0

    @property
    def queued(self) -> int:
        """The searches that have a slot and no thread, because others do not end."""
        return max(0, self.started - _MAX_THREADS)


_slots: RunVar[_SearchSlots] = RunVar("search_slots")


async def run_in_slot(call: Callable[[], T], workers: int) -> T:
    """Run a search in a thread when fewer run than this process has cores, of which it is one of several `workers`."""
    slots, holder, loop = _get_slots(workers), object(), asyncio.get_running_loop()
    try:
        slots.limiter.acquire_on_behalf_of_nowait(holder)  # the other form lets the event loop run first
    except anyio.WouldBlock:
        await slots.limiter.acquire_on_behalf_of(holder)

    def release() -> None:
        if not timer.cancelled():
            timer.cancel()
            slots.limiter.release_on_behalf_of(holder)

    timer = loop.call_later(MAX_COUNTED_S, release)
    slots.started += 1
    try:
        return await loop.run_in_executor(slots.threads, call)
    finally:
        slots.started -= 1
        release()


def _get_slots(workers: int) -> _SearchSlots:
    """The slots of the current event loop."""
    try:
        return _slots.get()
    except LookupError:
        _slots.set(_SearchSlots(count_slots(workers)))
        return _slots.get()


def count_slots(workers: int) -> int:
    """How many searches run at once in a process: its share of the cores. One process alone has its cores to itself,
    and a second search runs while the first one waits for its wiki's disk."""
    cores = count_available_cores()
    return max(2, cores) if workers < 2 else max(1, cores // workers)
