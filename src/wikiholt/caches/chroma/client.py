"""HTTP client for Chroma, with its errors and metrics.

None of the errors reaches a user: exact search answers instead, marked `degraded`.
"""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from wikiholt.errors import IndexUnavailable
from wikiholt.http_client import HttpClient

JsonValue = object
"""A parsed JSON value that is not validated yet."""

INSTANCE_HEADER = "X-Wikiholt-Incarnation"
"""The header with the instance id of the child process; it changes with every start."""

_MAX_BODY_BYTES = 1 << 30


class ChromaUnavailable(IndexUnavailable):
    """Chroma could not be reached, closed the connection, or timed out (`timed_out`)."""

    code = "chroma-away"

    def __init__(self, message: str, *, hint: str = "", timed_out: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.timed_out = timed_out


class ChromaError(IndexUnavailable):
    """Chroma replied with an error (`http_status`) or with an invalid reply (status 0)."""

    code = "chroma-refused"

    def __init__(self, message: str, *, hint: str = "", http_status: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.http_status = http_status


class ForeignCollection(IndexUnavailable):
    """A collection or database that Wikiholt did not create has the name; it is neither read nor changed."""

    code = "not-ours"


class CollectionBusy(IndexUnavailable):
    """Another process is writing the collection; retry in a moment."""

    code = "others-at-work"


METRIC_DESCRIPTIONS = {
    "queries": "Searches answered with candidates from Chroma",
    "fallbacks": "Searches answered by exact search because Chroma was unavailable, slow or wrong",
    "timeouts": "Requests that timed out",
    "failures": "Requests that failed for another reason",
    "starts": "Child processes started by this process",
    "crashes": "Child processes of this process that crashed or exited with an error",
    "kills": "Child processes killed because they hung",
    "checks": "Collections checked against the index",
    "repairs": "Collections repaired after a check",
    "rebuilds": "Collections rebuilt",
    "renewals": "Chroma directories reset, with the old files moved aside",
    "rows_written": "Rows written to collections",
    "rows_removed": "Rows removed from collections",
}


class ChromaMetrics:
    """Counters for all wikis together; none belongs to one wiki. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = dict.fromkeys(METRIC_DESCRIPTIONS, 0)

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self._counts[name] += count

    def add_failure(self, error: Exception) -> None:
        """Count an error as a timeout or as another failure."""
        self.add("timeouts" if isinstance(error, ChromaUnavailable) and error.timed_out else "failures")

    def get_counts(self) -> Mapping[str, int]:
        with self._lock:
            return dict(self._counts)


@dataclass(frozen=True, slots=True)
class ChromaReply:
    """A reply of Chroma. A new connection may lead to another server than before."""

    body: JsonValue
    instance_id: str
    is_new_connection: bool


class ChromaHttpClient:
    """HTTP to one Chroma. Idle connections are kept and shared by all threads of a process.

    `connect` opens a connection within a timeout in seconds. Redirects are not followed.
    """

    def __init__(self, connect: Callable[[float], socket.socket], headers: Mapping[str, str], host: str) -> None:
        self._connect = connect
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **headers}
        self._client = HttpClient(self._open_connection, host, _MAX_BODY_BYTES)

    def request(self, method: str, path: str, body: JsonValue = None, *, timeout_s: float) -> ChromaReply:
        """Send a request and wait at most `timeout_s` seconds. Raises ChromaUnavailable or ChromaError.

        A request may be sent twice, if an idle connection turns out to be closed.
        """
        content = None if body is None else json.dumps(body).encode()
        try:
            reply = self._client.send(method, path, content, self._headers, timeout_s=timeout_s)
        except TimeoutError as error:
            raise ChromaUnavailable("The request to Chroma timed out.", timed_out=True) from error
        except (OSError, http.client.IncompleteRead) as error:
            raise ChromaUnavailable(f"Chroma closed the connection ({type(error).__name__}).") from error
        except http.client.HTTPException as error:
            raise ChromaError("The server does not speak HTTP.") from error
        instance_id = reply.headers.get(INSTANCE_HEADER, "")
        return ChromaReply(_parse_response(reply.status, reply.body), instance_id, reply.is_new_connection)

    def close(self) -> None:
        """Close all idle connections."""
        self._client.close()

    def _open_connection(self, timeout_s: float) -> socket.socket:
        try:
            return self._connect(timeout_s)
        except TimeoutError as error:
            raise ChromaUnavailable("The connection to Chroma timed out.", timed_out=True) from error
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            reason = getattr(error, "strerror", None) or error
            raise ChromaUnavailable(f"Chroma cannot be reached ({reason}).") from error


def build_token_headers(token: str) -> Mapping[str, str]:
    """Return the headers for a token, in both ways that Chroma accepts; empty without a token."""
    return {"X-Chroma-Token": token, "Authorization": f"Bearer {token}"} if token else {}


def get_host_header(url: str) -> str:
    """Return the host and port of a URL as in a Host header."""
    return url.split("://", 1)[-1].split("/", 1)[0]


def _parse_response(status: int, content: bytes) -> JsonValue:
    try:
        document = json.loads(content) if content.strip() else None
    except (ValueError, RecursionError) as error:
        raise ChromaError("The server is not Chroma: it does not send JSON.", http_status=status) from error
    if status // 100 == 2:
        return document
    kind = document.get("error") if isinstance(document, dict) else None
    # The message may quote the text or name of a page, so report only the kind of error.
    raise ChromaError(f"Chroma replied with status {status} ({str(kind)[:60]}).", http_status=status)
