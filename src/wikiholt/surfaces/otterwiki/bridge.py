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

from wikiholt.surfaces.http.admission import ADMISSION, Admission
from wikiholt.surfaces.http.problems import refused

ANSWER_SECONDS = 120.0
"""How long a caller waits; longer than anything that a route waits for itself."""
MESSAGE_BYTES = 64 * 1024
"""How much is taken in of who may only read: agents ask by messages."""
_AFTERWARDS = 1.0


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer of the API."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


class Bridge:
    """Calls one application. Safe to use from many threads."""

    def __init__(self, app: ASGIApp, body_bytes: int, seconds: float = ANSWER_SECONDS) -> None:
        loop = asyncio.new_event_loop()
        Thread(target=loop.run_forever, name="wikiholt-api", daemon=True).start()
        self._wsgi = ASGIMiddleware(_Called(app, seconds), _AFTERWARDS, loop)  # type: ignore[arg-type]
        self._body_bytes = body_bytes

    def call(self, given: dict[str, Any], admission: Admission | None) -> Answered:
        """The answer to a request, given as WSGI has it, of a visitor whom the host has looked at."""
        begun: list[tuple[int, list[tuple[str, str]]]] = []

        def start(status: str, headers: list[tuple[str, str]], _fault: object = None) -> None:
            begun.append((int(status.partition(" ")[0]), headers))

        environ = {**given, **self._cleaned(given, admission), ADMISSION: admission}
        chunks: Iterable[bytes] = self._wsgi(environ, start)  # type: ignore[arg-type]
        body = b"".join(chunks)
        status, headers = begun[-1]
        return Answered(status, tuple(headers), body)

    def _cleaned(self, given: dict[str, Any], admission: Admission | None) -> dict[str, Any]:
        """What the way to ASGI would stumble over, put right: odd bytes in an address, bodies that end too early."""
        path = given.get("PATH_INFO", "").encode("latin-1").decode("utf-8", "replace").encode().decode("latin-1")
        query = quote(given.get("QUERY_STRING", ""), safe="%&=+:/?@!$'()*,;~[]-._", encoding="latin-1")
        body = self._body(given, admission)
        return {
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_PORT": str(given.get("REMOTE_PORT") or 0),
            "wsgi.input": BytesIO(body),
            # A body that was announced as too large keeps its length, by which it is refused.
            "CONTENT_LENGTH": str(len(body)) if body or not self._too_large(given) else given["CONTENT_LENGTH"],
        }

    def _body(self, given: dict[str, Any], admission: Admission | None) -> bytes:
        """All that was sent, of who may change something, and small messages of agents: no more is held in memory."""
        if admission is None or not (admission.changes or _is_message(given)) or self._too_large(given):
            return b""
        length = _length(given)
        if length is None and not given.get("wsgi.input_terminated"):
            return b""
        # One byte more than is allowed is enough to be refused by.
        data: bytes = given["wsgi.input"].read(self._body_bytes + 1 if length is None else length)
        return data

    def _too_large(self, given: dict[str, Any]) -> bool:
        return (_length(given) or 0) > self._body_bytes


def _is_message(given: dict[str, Any]) -> bool:
    """Whether an agent asks by it: that takes a body even where nothing is to be changed."""
    asks = (given.get("REQUEST_METHOD"), given.get("PATH_INFO")) == ("POST", "/api/v1/mcp")
    return asks and (_length(given) or 0) <= MESSAGE_BYTES


def _length(given: dict[str, Any]) -> int | None:
    text = given.get("CONTENT_LENGTH") or ""
    return int(text) if text.isdecimal() else None


class _Called:
    """The application with what the host has decided in its scope, and an end to waiting for it."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: CallScope, receive: Receive, send: Send) -> None:
        scope = {name: value for name, value in scope.items() if name != "wsgi_environ"} | {
            ADMISSION: scope["wsgi_environ"][ADMISSION]
        }
        answer = _Answer(send)
        work = asyncio.ensure_future(self._app(scope, receive, answer.send))
        done, _ = await asyncio.wait({work}, timeout=self._seconds)
        if done:
            await work
            return
        work.cancel()  # a route in a thread ends when it does; nobody waits for it
        if answer.late():
            told = refused(
                503, "too-slow", "The answer takes too long.", "Try again in a moment.", {"Retry-After": "5"}
            )
            await told(scope, receive, send)


class _Answer:
    """Passes an answer on, unless it comes too late."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self._over = False

    async def send(self, message: Message) -> None:
        if not self._over:
            self._begun = True
            await self._send(message)

    def late(self) -> bool:
        """Let nothing more pass; whether nothing has yet."""
        self._over = True
        return not self._begun
