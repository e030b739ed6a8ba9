"""An HTTP client for one server: a time limit for the entire exchange, connections that are kept, bounded replies.

Redirects are not followed, and proxies of the environment are not used.
"""

import http.client
import io
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.message import Message
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

_MAX_IDLE_CONNECTIONS = 8
_READ_BLOCK_BYTES = 1 << 20
_Request = tuple[str, str, bytes | None, dict[str, str]]
"""Method, path, content and headers."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """A reply of any status. A new connection may lead to another server than before."""

    status: int
    headers: Message
    body: bytes
    is_new_connection: bool


class HttpClient:
    """HTTP to one server. Idle connections are kept and shared by all threads of a process."""

    def __init__(self, connect: Callable[[float], socket.socket], host: str, max_reply_bytes: int) -> None:
        """`connect` opens a connection within a timeout in seconds. `host` is the value of the Host header."""
        self._connect = connect
        self._host = host
        self._max_reply_bytes = max_reply_bytes
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()
        weakref.finalize(self, _close_all, self._idle)

    def send(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str], *, timeout_s: float
    ) -> HttpReply:
        """Send a request and read the reply. Raises TimeoutError, other OSErrors, HTTPException, and as `connect` does.

        The request is sent twice if an idle connection turns out to be closed.
        """
        deadline, request = time.monotonic() + timeout_s, (method, path, content, dict(headers))
        idle = self._take_idle()
        if idle is not None:
            try:
                return self._exchange(idle, request, deadline, is_new_connection=False)
            except TimeoutError:
                raise
            except (OSError, http.client.HTTPException):
                pass
        connection = http.client.HTTPConnection(self._host)
        connection.sock = self._connect(_get_remaining_s(deadline))
        return self._exchange(connection, request, deadline, is_new_connection=True)

    @contextmanager
    def open_stream(
        self, method: str, path: str, content: bytes | None, headers: Mapping[str, str], *, timeout_s: float
    ) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Send a request, and yield the status and the parts of the body as they arrive. Raises as `send` does.

        The connection is a new one and is closed at the end of the block, so that the server stops.
        """
        deadline = time.monotonic() + timeout_s
        connection = http.client.HTTPConnection(self._host)
        connection.sock = self._connect(_get_remaining_s(deadline))
        with closing(connection):
            response = self._request(connection, (method, path, content, dict(headers)), deadline)
            with closing(response):
                yield response.status, self._iter_body(response)

    def close(self) -> None:
        """Close all idle connections; a later request opens a new one."""
        with self._lock:
            _close_all(self._idle)

    def _take_idle(self) -> http.client.HTTPConnection | None:
        with self._lock:
            if self._process != os.getpid():  # after a fork they belong to the parent
                self._process = os.getpid()
                self._idle.clear()
            return self._idle.pop() if self._idle else None

    def _exchange(
        self, connection: http.client.HTTPConnection, request: _Request, deadline: float, *, is_new_connection: bool
    ) -> HttpReply:
        """Send one request and read the reply. The connection is kept on success."""
        try:
            response = self._request(connection, request, deadline)
            body = b"".join(self._iter_body(response))
        except BaseException:
            connection.close()
            raise
        with self._lock:
            is_kept = not response.will_close and len(self._idle) < _MAX_IDLE_CONNECTIONS
            if is_kept and self._process == os.getpid():
                self._idle.append(connection)
            else:
                connection.close()
        return HttpReply(response.status, response.headers, body, is_new_connection)

    @staticmethod
    def _request(
        connection: http.client.HTTPConnection, request: _Request, deadline: float
    ) -> http.client.HTTPResponse:
        """Send one request and read the head of the reply."""
        connection.sock.settimeout(_get_remaining_s(deadline))
        connection.response_class = lambda sock, **options: http.client.HTTPResponse(  # type: ignore[assignment]
            cast(socket.socket, _TimedReader(sock, deadline)), **options
        )
        connection.request(*request)
        return connection.getresponse()

    def _iter_body(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        size = 0
        while part := response.read1(_READ_BLOCK_BYTES):
            yield part
            size += len(part)
            if size > self._max_reply_bytes:
                raise ConnectionAbortedError("the reply is too large")
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        response.close()  # the connection accepts the next request only then


class _TimedReader(io.RawIOBase):
    """Reads from a socket before a deadline, even if the bytes arrive one by one."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._file = connection.makefile("rb", buffering=0)
        self._deadline = deadline

    def makefile(self, _: str) -> io.BufferedReader:
        """The reader for HTTPResponse, which expects a socket."""
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "Buffer") -> int | None:
        self._connection.settimeout(_get_remaining_s(self._deadline))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


def open_connection(host: str, port: int, timeout_s: float, *, is_secure: bool) -> socket.socket:
    """Connect to a server, with TLS if `is_secure`. Raises OSError, and UnicodeError for an invalid host name."""
    connection = socket.create_connection((host, port), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return ssl.create_default_context().wrap_socket(connection, server_hostname=host) if is_secure else connection
    except BaseException:
        connection.close()
        raise


def _get_remaining_s(deadline: float) -> float:
    remaining_s = deadline - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    return remaining_s


def _close_all(idle: list[http.client.HTTPConnection]) -> None:
    while idle:
        idle.pop().close()
