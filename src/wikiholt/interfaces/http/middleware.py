"""What every request passes on its way in and every answer on its way out.

One ASGI layer: it takes /w/{slug} off the path, bounds the body, answers HEAD where GET is
answered, adds the headers every answer has, counts, and turns what nobody foresaw into a 500 that tells nothing.
"""

import logging
import math
import re
import time
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from wikiholt.interfaces.http.metrics import ServiceMetrics
from wikiholt.interfaces.http.problem_details import make_internal_error_response
from wikiholt.interfaces.http.responses import limit_body
from wikiholt.wikis.rate_limit import Allowance

_log = logging.getLogger(__name__)

SLUG_KEY = "wikiholt.named"
ALLOWANCE_KEY = "wikiholt.allowance"
"""Where the scope keeps the slug of the path, and what the rate limit still allows."""

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
    """What the edge refuses, and whether pages of other origins may read answers."""

    body_bytes: int
    allow_cross_origin: bool


class RequestMiddleware:
    """The outermost layer of the service's own."""

    def __init__(self, app: ASGIApp, *, limits: RequestLimits, metrics: ServiceMetrics) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        answer = _ResponseSender(scope["method"], send, allow_cross_origin=self._limits.allow_cross_origin)
        # A copy: the server below goes by the method it was sent.
        answer.scope = scope = dict(scope)
        refusal = self._prepare_scope(scope)
        try:
            if refusal is not None:
                await refusal(scope, receive, answer.send)
            else:
                await self._app(scope, limit_body(scope, receive, self._limits.body_bytes), answer.send)
        except ClientDisconnect:
            _log.debug("a client left before it had sent all")
        except Exception:  # noqa: BLE001 - whatever it is, the visitor gets an answer and the log the rest
            # The route, not the address: an address may hold what a visitor typed.
            _log.exception("a request failed at %s", _get_route(scope))
            if not answer.status:
                await make_internal_error_response()(scope, receive, answer.send)
        finally:
            self._metrics.record_request(_get_route(scope), answer.method, answer.status, time.perf_counter() - began)

    def _prepare_scope(self, scope: Scope) -> Response | None:
        """Note what the address says beside the route; the answer, where there is no need to go further."""
        inside = scope["path"].removeprefix(scope.get("root_path", ""))
        if found := _WIKI_PREFIX_PATTERN.fullmatch(inside):
            scope[SLUG_KEY] = found[1]
            scope["root_path"] = f"{scope.get('root_path', '')}/w/{found[1]}"
            if found[2] is None:
                return RedirectResponse(f"{scope['root_path']}/", 308)
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
        return None


def _get_route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path_format", "none"))


class _ResponseSender:
    """Passes an answer on with the headers every answer has, and without its body where only the head was asked for."""

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
