"""What goes wrong with Chroma. None of it reaches a visitor: exact search answers and says `degraded`."""

import contextlib
import http.client
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wikiholt.errors import IndexUnavailable


class ChromaUnavailable(IndexUnavailable):
    """Chroma could not be reached, went away in the middle, or took too long (`hung`)."""

    code = "chroma-away"

    def __init__(self, message: str, *, hint: str = "", timed_out: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.timed_out = timed_out


class ChromaError(IndexUnavailable):
    """Chroma answered, with an error (`answered`) or with what makes no sense (0)."""

    code = "chroma-refused"

    def __init__(self, message: str, *, hint: str = "", http_status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.http_status = http_status


class ForeignCollection(IndexUnavailable):
    """There is something of that name which Wikiholt did not make; it is neither read nor changed."""

    code = "not-ours"


class CollectionBusy(IndexUnavailable):
    """Another process is writing the collection; a moment later it will be ready."""

    code = "others-at-work"


# What is counted of Chroma. No figure belongs to a wiki.


METRIC_DESCRIPTIONS = {
    "queries": "searches answered with Chroma's help",
    "fallbacks": "searches answered by exact scores because Chroma was away, slow or wrong",
    "timeouts": "requests that took too long",
    "failures": "requests that failed otherwise",
    "starts": "child processes started by this process",
    "crashes": "child processes of this process that ended by a signal or with an error",
    "kills": "child processes ended because they hung",
    "checks": "collections compared with the truth",
    "repairs": "collections in which the comparison found something to mend",
    "rebuilds": "collections filled anew",
    "renewals": "directories set aside",
    "rows_written": "rows written to collections",
    "rows_removed": "rows removed from collections",
}


class ChromaMetrics:
    """Counters that only grow."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(METRIC_DESCRIPTIONS, 0)

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def get_counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)


# HTTP to a Chroma, each request within its time. Connections are kept and shared by all threads of one process.


JsonValue = object
"""What came as JSON and was not looked at yet."""

INSTANCE_HEADER = "X-Wikiholt-Incarnation"
"""The header by which our own child says that it is another one than before."""

_MAX_IDLE_CONNECTIONS = 8
_MAX_BODY_BYTES = 1 << 30
_READ_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class ChromaReply:
    """What was answered; `fresh` if over a new connection, behind which may be another server than before."""

    body: JsonValue
    instance_id: str
    is_new_connection: bool


class ChromaHttpClient:
    """A way to one Chroma; `connect` gives a new connection within so many seconds."""

    def __init__(self, connect: Callable[[float], socket.socket], headers: Mapping[str, str], host: str) -> None:
        self._connect = connect
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        self._host = host
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()

    def request(self, method: str, path: str, body: JsonValue = None, *, timeout: float) -> ChromaReply:
        """Ask and wait at most so long; raises ChromaAway or ChromaRefused."""
        until = time.monotonic() + timeout
        sent = None if body is None else json.dumps(body).encode()
        kept = self._take_idle()
        if kept is not None:
            try:
                return self._send_request(kept, method, path, sent, until, is_new_connection=False)
            except ChromaUnavailable as error:
                # A kept connection may have been closed since. Every request may be made twice.
                if error.timed_out:
                    raise
        return self._send_request(self._open_connection(until), method, path, sent, until, is_new_connection=True)

    def close(self) -> None:
        """Let every connection go that is not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _take_idle(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():  # after a fork they are the parent's
                self._process, self._idle = os.getpid(), []
            return self._idle.pop() if self._idle else None

    def _open_connection(self, deadline: float) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host)
        try:
            connection.sock = self._connect(_get_remaining_s(deadline))
        except TimeoutError as error:
            raise ChromaUnavailable("Chroma takes no connection in time.", timed_out=True) from error
        except OSError as error:
            raise ChromaUnavailable(f"Chroma cannot be reached ({error.strerror or error}).") from error
        return connection

    def _send_request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        sent: bytes | None,
        deadline: float,
        *,
        is_new_connection: bool,
    ) -> ChromaReply:
        """One request and its answer; the connection is kept if both went well."""
        try:
            connection.sock.settimeout(_get_remaining_s(deadline))
            connection.request(method, path, sent, dict(self._headers))
            answer = connection.getresponse()
            content = _read_body(connection, answer, deadline)
        except TimeoutError as error:
            connection.close()
            raise ChromaUnavailable("Chroma did not answer in time.", timed_out=True) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            gone = isinstance(error, OSError | http.client.RemoteDisconnected | http.client.IncompleteRead)
            if gone:
                raise ChromaUnavailable(f"Chroma went away ({type(error).__name__}).") from error
            raise ChromaError("What answers there does not speak HTTP.") from error
        except BaseException:
            connection.close()
            raise
        self._return_connection(connection, answer)
        return ChromaReply(
            _parse_response(answer.status, content), answer.headers.get(INSTANCE_HEADER, ""), is_new_connection
        )

    def _return_connection(self, connection: http.client.HTTPConnection, answer: http.client.HTTPResponse) -> None:
        with self._lock:
            if not answer.will_close and len(self._idle) < _MAX_IDLE_CONNECTIONS and self._process == os.getpid():
                self._idle.append(connection)
                return
        connection.close()


def _get_remaining_s(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read_body(connection: http.client.HTTPConnection, answer: http.client.HTTPResponse, deadline: float) -> bytes:
    """The body, however slowly it drips, within the time."""
    parts: list[bytes] = []
    size = 0
    while True:
        with contextlib.suppress(AttributeError):  # the connection lets its socket go with the last byte
            connection.sock.settimeout(_get_remaining_s(deadline))
        part = answer.read1(_READ_BLOCK_BYTES)
        if not part:
            if answer.length:
                raise http.client.IncompleteRead(b"", answer.length)
            answer.close()  # the connection takes the next request only then
            return b"".join(parts)
        _get_remaining_s(deadline)
        parts.append(part)
        size += len(part)
        if size > _MAX_BODY_BYTES:
            raise ConnectionAbortedError("too much was answered")


def _parse_response(status: int, content: bytes) -> JsonValue:
    try:
        document = json.loads(content) if content.strip() else None
    except (ValueError, RecursionError) as error:
        raise ChromaError("What answers there is no Chroma: it sends no JSON.", http_status=status) from error
    if status // 100 == 2:
        return document
    named = document.get("error") if isinstance(document, dict) else None
    # Its message may quote a page's text or name; the kind of error is enough.
    raise ChromaError(f"Chroma refused with {status} ({str(named)[:60]}).", http_status=status)
