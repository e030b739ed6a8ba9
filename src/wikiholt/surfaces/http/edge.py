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

from wikiholt.limits import Allowance
from wikiholt.surfaces.http.bodies import bounded
from wikiholt.surfaces.http.counting import Metrics
from wikiholt.surfaces.http.problems import unexpected

_LOG = logging.getLogger(__name__)

NAMED = "wikiholt.named"
ALLOWANCE = "wikiholt.allowance"
"""Where the scope keeps the slug of the path, and what the rate limit still allows."""

_PREFIX = re.compile(r"/w/([^/]*)(/.*)?", re.DOTALL)
_CSP = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_FIXED = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": _CSP,
}


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """What the edge refuses, and whether pages of other origins may read answers."""

    body_bytes: int
    shared: bool


class Edge:
    """The outermost layer of the service's own."""

    def __init__(self, app: ASGIApp, *, limits: EdgeLimits, metrics: Metrics) -> None:
        self._app = app
        self._limits = limits
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        answer = _Answer(scope["method"], send, shared=self._limits.shared)
        # A copy: the server below goes by the method it was sent.
        answer.scope = scope = dict(scope)
        refusal = self._enter(scope)
        try:
            if refusal is not None:
                await refusal(scope, receive, answer.send)
            else:
                await self._app(scope, bounded(scope, receive, self._limits.body_bytes), answer.send)
        except ClientDisconnect:
            _LOG.debug("a client left before it had sent all")
        except Exception:  # noqa: BLE001 - whatever it is, the visitor gets an answer and the log the rest
            # The route, not the address: an address may hold what a visitor typed.
            _LOG.exception("a request failed at %s", _route(scope))
            if not answer.status:
                await unexpected()(scope, receive, answer.send)
        finally:
            self._metrics.answered(_route(scope), answer.method, answer.status, time.perf_counter() - began)

    def _enter(self, scope: Scope) -> Response | None:
        """Note what the address says beside the route; the answer, where there is no need to go further."""
        inside = scope["path"].removeprefix(scope.get("root_path", ""))
        if found := _PREFIX.fullmatch(inside):
            scope[NAMED] = found[1]
            scope["root_path"] = f"{scope.get('root_path', '')}/w/{found[1]}"
            if found[2] is None:
                return RedirectResponse(f"{scope['root_path']}/", 308)
        if scope["method"] == "HEAD":
            scope["method"] = "GET"
        return None


def _route(scope: Scope) -> str:
    return str(getattr(scope.get("route"), "path_format", "none"))


class _Answer:
    """Passes an answer on with the headers every answer has, and without its body where only the head was asked for."""

    def __init__(self, method: str, send: Send, *, shared: bool) -> None:
        self.method = method
        self.status = 0
        self.scope: Scope = {}
        self._send = send
        self._shared = shared

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._complete(MutableHeaders(scope=message))
        elif self.method == "HEAD":
            message = {**message, "body": b""}
        await self._send(message)

    def _complete(self, headers: MutableHeaders) -> None:
        for name, value in _FIXED.items():
            headers.setdefault(name, value)
        if self._shared:
            headers["Cross-Origin-Resource-Policy"] = "cross-origin"
        headers.add_vary_header("Authorization")
        allowance: Allowance | None = self.scope.get(ALLOWANCE)
        if allowance is not None and allowance.limit:
            headers["RateLimit-Policy"] = f'"minute";q={allowance.limit};w=60'
            headers["RateLimit"] = f'"minute";r={allowance.remaining};t={math.ceil(allowance.reset_seconds)}'
