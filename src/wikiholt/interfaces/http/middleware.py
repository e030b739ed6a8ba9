"""The ASGI middleware that every request passes.

It removes /w/{slug} from the path, limits the body and the number of waiting requests, answers HEAD like GET, adds
common headers, records metrics, and turns unexpected exceptions into a 500 response without details.
"""

import logging
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wikiholt.interfaces.http.metrics import ServiceMetrics
from wikiholt.interfaces.http.problem_details import make_error_response
from wikiholt.interfaces.http.responses import limit_body
from wikiholt.interfaces.http.search_threads import count_waiting_requests
from wikiholt.wikis.rate_limit import Allowance

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


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Maximum size of a body, how many requests may wait, and whether pages of other origins may read
    responses."""

    body_bytes: int
    waiting_requests: int
    allow_cross_origin: bool


class RequestMiddleware:
    """The outermost middleware of the application, apart from CORS."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: RequestLimits,
        metrics: ServiceMetrics,
        make_failure_response: Callable[[Request], Response],
    ) -> None:
        self._app = app
        self._limits = limits
        self._make_failure_response = make_failure_response
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        response = _ResponseSender(scope["method"], send, allow_cross_origin=self._limits.allow_cross_origin)
        # A copy: the server still needs the original method.
        response.scope = scope = dict(scope)
        early_response = self._prepare_scope(scope) or self._refuse_if_overloaded(scope)
        try:
            if early_response is not None:
                await early_response(scope, receive, response.send)
            else:
                await self._app(scope, limit_body(scope, receive, self._limits.body_bytes), response.send)
        except ClientDisconnect:
            _log.debug("client disconnected before the request was complete")
        except Exception:  # noqa: BLE001 - the client gets a response without details, the log gets the traceback
            # Log the route, not the URL: a URL may contain user input.
            _log.exception("request failed at %s", _get_route(scope))
            if not response.status:
                await self._make_failure_response(Request(scope))(scope, receive, response.send)
        finally:
            seconds = time.perf_counter() - started
            self._metrics.record_request(_get_route(scope), response.method, response.status, seconds)

    def _prepare_scope(self, scope: Scope) -> Response | None:
        """Move the slug from the path to the scope and treat HEAD as GET; return a redirect if the path needs one."""
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if match := _WIKI_PREFIX_PATTERN.fullmatch(path):
            scope[SLUG_KEY] = match[1]
            scope["root_path"] = f"{scope.get('root_path', '')}/w/{match[1]}"
            if match[2] is None:
                return RedirectResponse(f"{scope['root_path']}/", 308)
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
        return None

    def _refuse_if_overloaded(self, scope: Scope) -> Response | None:
        """The response to a request for which too many others wait; checks of the service are always answered."""
        if count_waiting_requests() < self._limits.waiting_requests or scope["path"] in _NEVER_REFUSED_PATHS:
            return None
        hint = f"Try again in {_OVERLOAD_RETRY_S} s."
        headers = {"Retry-After": str(_OVERLOAD_RETRY_S)}
        return make_error_response(503, "overloaded", "Too many requests are waiting.", hint, headers)


def _get_route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path_format", "none"))


class _ResponseSender:
    """Sends a response with the common headers, and without its body for HEAD."""

    def __init__(self, method: str, send: Send, *, allow_cross_origin: bool) -> None:
        self.method = method
        self.status = 0
        self.scope: Scope = {}
        self._send = send
        self._allow_cross_origin = allow_cross_origin

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._add_headers(MutableHeaders(scope=message))
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    def _add_headers(self, headers: MutableHeaders) -> None:
        for name, value in _FIXED_HEADERS.items():
            headers.setdefault(name, value)
        if self._allow_cross_origin:
            headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        headers.add_vary_header("Authorization")
        allowance: Allowance | None = self.scope.get(ALLOWANCE_KEY)
        if allowance is not None and allowance.limit:
            headers["RateLimit-Policy"] = f'"minute";q={allowance.limit};w=60'
            headers["RateLimit"] = f'"minute";r={allowance.remaining};t={math.ceil(allowance.reset_seconds)}'
