"""HTTP to a Chroma, each request within its time. Connections are kept and shared by all threads of one process."""

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wikiholt.vectors.chroma.faults import ChromaAway, ChromaRefused

Json = object
"""What came as JSON and was not looked at yet."""

INCARNATION = "X-Wikiholt-Incarnation"
"""The header by which our own child says that it is another one than before."""

_IDLE = 8
_LARGEST = 1 << 30
_STEP = 1 << 20


@dataclass(frozen=True, slots=True)
class Reply:
    """What was answered; `fresh` if over a new connection, behind which may be another server than before."""

    body: Json
    incarnation: str
    fresh: bool


class Wire:
    """A way to one Chroma; `connect` gives a new connection within so many seconds."""

    def __init__(self, connect: Callable[[float], socket.socket], headers: Mapping[str, str], host: str) -> None:
        self._connect = connect
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        self._host = host
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()

    def ask(self, method: str, path: str, body: Json = None, *, timeout: float) -> Reply:
        """Ask and wait at most so long; raises ChromaAway or ChromaRefused."""
        until = time.monotonic() + timeout
        sent = None if body is None else json.dumps(body).encode()
        kept = self._take()
        if kept is not None:
            try:
                return self._exchange(kept, method, path, sent, until, fresh=False)
            except ChromaAway as error:
                # A kept connection may have been closed since. Every request may be made twice.
                if error.hung:
                    raise
        return self._exchange(self._opened(until), method, path, sent, until, fresh=True)

    def close(self) -> None:
        """Let every connection go that is not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():  # after a fork they are the parent's
                self._process, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None

    def _opened(self, until: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host)
        try:
            connection.sock = self._connect(_left(until))
        except TimeoutError as error:
            raise ChromaAway("Chroma takes no connection in time.", hung=True) from error
        except OSError as error:
            raise ChromaAway(f"Chroma cannot be reached ({error.strerror or error}).") from error
        return connection

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        sent: bytes | None,
        until: float,
        *,
        fresh: bool,
    ) -> Reply:
        """One request and its answer; the connection is kept if both went well."""
        try:
            connection.sock.settimeout(_left(until))
            connection.request(method, path, sent, dict(self._headers))
            answer = connection.getresponse()
            content = _read(connection, answer, until)
        except TimeoutError as error:
            connection.close()
            raise ChromaAway("Chroma did not answer in time.", hung=True) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            gone = isinstance(error, OSError | http.client.RemoteDisconnected | http.client.IncompleteRead)
            if gone:
                raise ChromaAway(f"Chroma went away ({type(error).__name__}).") from error
            raise ChromaRefused("What answers there does not speak HTTP.") from error
        except BaseException:
            connection.close()
            raise
        self._keep(connection, answer)
        return Reply(_understood(answer.status, content), answer.headers.get(INCARNATION, ""), fresh)

    def _keep(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        with self._lock:
            if not answer.will_close and len(self._idle) < _IDLE and self._process == os.getpid():
                self._idle.append(connection)
                return
        connection.close()


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read(connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, until: float) -> bytes:
    """The body, however slowly it drips, within the time."""
    parts: list[bytes] = []
    size = 0
    while True:
        with contextlib.suppress(AttributeError):  # the connection lets its socket go with the last byte
            connection.sock.settimeout(_left(until))
        part = answer.read1(_STEP)
        if not part:
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
            answer.close()  # the connection takes the next request only then
            return b"".join(parts)
        _left(until)
        parts.append(part)
        size += len(part)
        if size > _LARGEST:
            raise ConnectionAbortedError("too much was answered")


def _understood(status: int, content: bytes) -> Json:
    try:
        document = json.loads(content) if content.strip() else None
    except (ValueError, RecursionError) as error:
        raise ChromaRefused("What answers there is no Chroma: it sends no JSON.", answered=status) from error
    if status // 100 == 2:
        return document
    named = document.get("error") if isinstance(document, dict) else None
    # Its message may quote a page's text or name; the kind of error is enough.
    raise ChromaRefused(f"Chroma refused with {status} ({str(named)[:60]}).", answered=status)
