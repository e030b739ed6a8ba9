"""The API, an ASGI application, called from the threads of a WSGI server.

One event loop in one thread, made by whoever calls first: never in a process that is yet to fork, for each bridge
belongs to the farm of one process. Routes run in threads of the loop's own, as many as there are callers.
"""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from threading import Thread
from typing import Any
from urllib.parse import quote

from a2wsgi import ASGIMiddleware
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as CallScope

from wikiholt.surfaces.http.admission import HOST_GRANT_KEY, HostGrant
from wikiholt.surfaces.http.problems import make_error_response

RESPONSE_TIMEOUT_S = 120.0
"""How long a caller waits; longer than anything that a route waits for itself."""
MAX_MCP_MESSAGE_BYTES = 64 * 1024
"""How much is taken in of who may only read: agents ask by messages."""
_CLEANUP_TIMEOUT_S = 1.0


@dataclass(frozen=True, slots=True)
class BridgeResponse:
    """An answer of the API."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class AsgiBridge:
    """Calls one application. Safe to use from many threads."""

    def __init__(self, app: ASGIApp, body_bytes: int, timeout_s: float = RESPONSE_TIMEOUT_S) -> None:
        loop = asyncio.new_event_loop()
        Thread(target=loop.run_forever, name="wikiholt-api", daemon=True).start()
        self._wsgi = ASGIMiddleware(_TimeLimitedApp(app, timeout_s), _CLEANUP_TIMEOUT_S, loop)  # type: ignore[arg-type]
        self._body_bytes = body_bytes

    def call(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> BridgeResponse:
        """The answer to a request, given as WSGI has it, of a visitor whom the host has looked at."""
        begun: list[tuple[int, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], _fault: object = None) -> None:
            begun.append((int(status.partition(" ")[0]), headers))

        environ = {**wsgi_environ, **self._clean_environ(wsgi_environ, host_grant), HOST_GRANT_KEY: host_grant}
        chunks: Iterable[bytes] = self._wsgi(environ, start)  # type: ignore[arg-type]
        body = b"".join(chunks)
        status, headers = begun[-1]
        return BridgeResponse(status, tuple(headers), body)

    def _clean_environ(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> dict[str, Any]:
        """What the way to ASGI would stumble over, put right: odd bytes in an address, bodies that end too early."""
        path = wsgi_environ.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace").encode().decode("latin-1")
        query = quote(wsgi_environ.get("QUERY_STRING", ""), safe="%&=+:/?@!$'()*,;~[]-._", encoding="latin-1")
        body = self._read_body(wsgi_environ, host_grant)
        return {
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_PORT": str(wsgi_environ.get("REMOTE_PORT") or 0),
            "wsgi.input": BytesIO(body),
            # A body that was announced as too large keeps its length, by which it is refused.
            "CONTENT_LENGTH": str(len(body)) if body or not self._is_too_large(wsgi_environ) else wsgi_environ["CONTENT_LENGTH"],
        }

    def _read_body(self, wsgi_environ: dict[str, Any], host_grant: HostGrant | None) -> bytes:
        """All that was sent, of who may change something, and small messages of agents: no more is held in memory."""
        if host_grant is None or not (host_grant.can_write or _is_mcp_message(wsgi_environ)) or self._is_too_large(wsgi_environ):
            return b""
        length = _get_content_length(wsgi_environ)
        if length is None and not wsgi_environ.get("wsgi.input_terminated"):
            return b""
        # One byte more than is allowed is enough to be refused by.
        data: bytes = wsgi_environ["wsgi.input"].read(self._body_bytes + 1 if length is None else length)
        return data

    def _is_too_large(self, wsgi_environ: dict[str, Any]) -> bool:
        return (_get_content_length(wsgi_environ) or 0) > self._body_bytes


def _is_mcp_message(wsgi_environ: dict[str, Any]) -> bool:
    """Whether an agent asks by it: that takes a body even where nothing is to be changed."""
    asks = (wsgi_environ.get("REQUEST_METHOD"), wsgi_environ.get("PATH_INFO")) == ("POST", "/api/v1/mcp")
    return asks and (_get_content_length(wsgi_environ) or 0) <= MAX_MCP_MESSAGE_BYTES


def _get_content_length(wsgi_environ: dict[str, Any]) -> int | None:
    text = wsgi_environ.get("CONTENT_LENGTH") or ""
    return int(text) if text.isdecimal() else None


class _TimeLimitedApp:
    """The application with what the host has decided in its scope, and an end to waiting for it."""

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self._app = app
        self._timeout_s = timeout_s

    async def __call__(self, scope: CallScope, receive: Receive, send: Send) -> None:
        scope = {name: value for name, value in scope.items() if name != "wsgi_environ"} | {
            HOST_GRANT_KEY: scope["wsgi_environ"][HOST_GRANT_KEY]
        }
        answer = _GuardedSender(send)
        work = asyncio.ensure_future(self._app(scope, receive, answer.send))
        done, _ = await asyncio.wait({work}, timeout=self._timeout_s)
        if done:
            await work
            return
        work.cancel()  # a route in a thread ends when it does; nobody waits for it
        if answer.close_if_unstarted():
            told = make_error_response(
                503, "too-slow", "The answer takes too long.", "Try again in a moment.", {"Retry-After": "5"}
            )
            await told(scope, receive, send)


class _GuardedSender:
    """Passes an answer on, unless it comes too late."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._started = False
        self._closed = False

    async def send(self, message: Message) -> None:
        if not self._closed:
            self._started = True
            await self._send(message)

    def close_if_unstarted(self) -> bool:
        """Let nothing more pass; whether nothing has yet."""
        self._closed = True
        return not self._started
