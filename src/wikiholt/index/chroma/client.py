"""The part of Chroma's REST interface (v2) that Wikiholt uses, its errors, and its metrics.

None of the errors reaches a user: exact search answers instead, marked `degraded`.
"""

import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from wikiholt.domain.index import FloatArray
from wikiholt.errors import IndexUnavailable
from wikiholt.http_client import HttpClient, open_connection

Metadata = Mapping[str, str | int]
Connector = Callable[[float], socket.socket]
"""Opens a connection within a timeout in seconds. Raises OSError."""

INDEX_CONFIGURATION = {"hnsw": {"space": "cosine", "ef_construction": 150, "ef_search": 200, "max_neighbors": 24}}
INSTANCE_HEADER = "X-Wikiholt-Instance"
"""The header with the id of an own server, which changes with every start."""

_MAX_BODY_BYTES = 1 << 30
_ITEMS_PER_REQUEST = 5000


class ChromaUnavailable(IndexUnavailable):
    """Chroma could not be reached, or closed the connection."""

    code = "chroma-away"


class ChromaTimeout(ChromaUnavailable):
    """Chroma did not reply in time."""


class ChromaError(IndexUnavailable):
    """Chroma replied with an error (`http_status`) or with an invalid reply (status 0)."""

    code = "chroma-refused"

    def __init__(self, message: str, http_status: int = 0, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.http_status = http_status


class ForeignCollection(IndexUnavailable):
    """A collection or database that Wikiholt did not create has the name; it is neither read nor changed."""

    code = "not-ours"


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
        self.counts = dict.fromkeys(METRIC_DESCRIPTIONS, 0)

    def add(self, name: str, count: int = 1) -> None:
        with self._lock:
            self.counts[name] += count

    def add_failure(self, error: Exception) -> None:
        """Count an error as a timeout or as another failure."""
        self.add("timeouts" if isinstance(error, ChromaTimeout) else "failures")


def make_connector(url: str, default_port: int = 8000) -> Connector:
    """`default_port` is for an http URL without a port. Raises ValueError for an invalid port."""
    address = urlsplit(url)
    is_secure = address.scheme == "https"
    port = address.port or (443 if is_secure else default_port)
    return lambda timeout_s: open_connection(address.hostname or "", port, timeout_s, is_secure=is_secure)


@dataclass(frozen=True, slots=True)
class ChromaReply:
    """A reply of Chroma. A new connection may lead to another server than before."""

    document: Any
    instance_id: str
    is_new_connection: bool


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection as Chroma describes it."""

    id: str
    name: str
    metadata: Metadata


class ChromaClient:
    """One database of one tenant of one Chroma. Idle connections are kept; redirects are not followed."""

    def __init__(
        self,
        connect: Connector,
        url: str,
        tenant: str,
        database: str,
        *,
        token: str = "",
        read_timeout_s: float,
        write_timeout_s: float = 0.0,
    ) -> None:
        """`url` gives the Host header, and the path before that of Chroma."""
        address = urlsplit(url)
        self._client = HttpClient(connect, address.netloc, _MAX_BODY_BYTES)
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if token:  # in both ways that Chroma accepts
            self._headers |= {"X-Chroma-Token": token, "Authorization": f"Bearer {token}"}
        self._root = f"{address.path.rstrip('/')}/api/v2"
        self._database_path = f"/tenants/{quote(tenant, '')}/databases/{quote(database, '')}"
        self._read_timeout_s, self._write_timeout_s = read_timeout_s, write_timeout_s

    def request(
        self, method: str, path: str, body: object = None, *, is_write: bool = False, timeout_s: float = 0.0
    ) -> ChromaReply:
        """Send a request and wait for the reply. Raises ChromaUnavailable or ChromaError.

        A request may be sent twice, if an idle connection turns out to be closed.
        """
        content = None if body is None else json.dumps(body).encode()
        timeout_s = timeout_s or (self._write_timeout_s if is_write else self._read_timeout_s)
        try:
            reply = self._client.send(method, f"{self._root}{path}", content, self._headers, timeout_s=timeout_s)
        except TimeoutError as error:
            raise ChromaTimeout("The request to Chroma timed out.") from error
        except (OSError, http.client.IncompleteRead) as error:
            reason = getattr(error, "strerror", None) or type(error).__name__
            raise ChromaUnavailable(f"Chroma cannot be reached ({reason}).") from error
        except (http.client.HTTPException, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise make_reply_error() from error
        try:
            document = json.loads(reply.body) if reply.body.strip() else None
        except (ValueError, RecursionError) as error:
            raise make_reply_error(reply.status) from error
        if reply.status // 100 != 2:
            kind = document.get("error") if isinstance(document, dict) else None
            # The message may quote the text or name of a page, so report only the kind of error.
            raise ChromaError(f"Chroma replied with status {reply.status} ({str(kind)[:60]}).", reply.status)
        return ChromaReply(document, reply.headers.get(INSTANCE_HEADER, ""), reply.is_new_connection)

    def close(self) -> None:
        """Close all idle connections."""
        self._client.close()

    def check_heartbeat(self) -> str:
        """Return the instance id of Chroma, empty for an external server. Raises if it does not respond."""
        return self.request("GET", "/heartbeat").instance_id

    def ensure_database(self) -> None:
        """Create the tenant and the database if they do not exist."""
        _, _, tenant, _, database = self._database_path.split("/")
        for path, name in (("/tenants", tenant), (f"/tenants/{tenant}/databases", database)):
            if self._request_if_found("GET", f"{path}/{name}") is None:
                self.request("POST", path, {"name": name}, is_write=True)

    def find_collection(self, name: str) -> CollectionInfo | None:
        reply = self._request_if_found("GET", f"{self._database_path}/collections/{quote(name, '')}")
        return None if reply is None else _parse_collection(reply.document)

    def iter_collections(self) -> Iterator[CollectionInfo]:
        offset, count = 0, _ITEMS_PER_REQUEST
        while count == _ITEMS_PER_REQUEST:
            listing = f"{self._database_path}/collections?limit={_ITEMS_PER_REQUEST}&offset={offset}"
            collections = _check_list(self.request("GET", listing).document)
            yield from map(_parse_collection, collections)
            count = len(collections)
            offset += count

    def create_collection(self, name: str, metadata: Metadata) -> CollectionInfo:
        body = {"name": name, "metadata": metadata, "configuration": INDEX_CONFIGURATION, "get_or_create": False}
        return _parse_collection(
            self.request("POST", f"{self._database_path}/collections", body, is_write=True).document
        )

    def delete_collection(self, name: str) -> None:
        """Delete a collection if it exists."""
        self._request_if_found("DELETE", f"{self._database_path}/collections/{quote(name, '')}")

    def open_records(self, collection: CollectionInfo) -> "CollectionRecords":
        """Return access to the records of this collection only."""
        return CollectionRecords(self.request, f"{self._database_path}/collections/{quote(collection.id, '')}")

    def _request_if_found(self, method: str, path: str) -> ChromaReply | None:
        try:
            return self.request(method, path, is_write=method != "GET")
        except ChromaError as error:
            if error.http_status == 404:
                return None
            raise


class CollectionRecords:
    """The records of one collection. It gives no access to other collections."""

    def __init__(self, request: Callable[..., ChromaReply], path: str) -> None:
        self._request = request
        self._path = path

    def replace_metadata(self, metadata: Metadata) -> None:
        """Replace the metadata of the collection."""
        self._request("PUT", self._path, {"new_metadata": metadata, "new_name": None}, is_write=True)

    def count(self) -> object:
        return self._request("GET", f"{self._path}/count").document

    def upsert(
        self,
        ids: Sequence[str],
        vectors: FloatArray,
        metadatas: Sequence[Metadata] | None = None,
        texts: Sequence[str] | None = None,
    ) -> None:
        """Write records, replacing those with the same id."""
        body = {"ids": ids, "embeddings": vectors.tolist(), "metadatas": metadatas, "documents": texts}
        self._request("POST", f"{self._path}/upsert", body, is_write=True)

    def delete(self, ids: Sequence[str]) -> None:
        self._request("POST", f"{self._path}/delete", {"ids": ids}, is_write=True)

    def iter_batches(self, columns: Sequence[str], size: int = _ITEMS_PER_REQUEST) -> Iterator[list[list[Any]]]:
        """Yield the ids and these columns of all records, in parallel lists; an absent column is a list of None."""
        offset, count = 0, size
        while count == size:
            body = {"include": columns, "limit": size, "offset": offset}
            document = self._request("POST", f"{self._path}/get", body).document
            ids = _check_list(document.get("ids") if isinstance(document, dict) else None)
            count = len(ids)
            yield [ids, *(_check_list(document.get(column) or [None] * count, count) for column in columns)]
            offset += count

    def search(self, vectors: FloatArray, limit: int, timeout_s: float = 0.0) -> tuple[list[list[str]], ChromaReply]:
        """Return the ids of the `limit` nearest records of each vector, and the reply."""
        body = {"query_embeddings": vectors.tolist(), "n_results": limit, "include": []}
        reply = self._request("POST", f"{self._path}/query", body, timeout_s=timeout_s)
        ids = _check_list(reply.document.get("ids") if isinstance(reply.document, dict) else None, len(vectors))
        return [[str(name) for name in _check_list(names)] for names in ids], reply


def make_reply_error(http_status: int = 0) -> ChromaError:
    return ChromaError("The server is not Chroma, or an incompatible version: the reply is invalid.", http_status)


def _check_list(value: object, length: int | None = None) -> list[Any]:
    if not isinstance(value, list) or (length is not None and len(value) != length):
        raise make_reply_error()
    return value


def _parse_collection(document: object) -> CollectionInfo:
    fields = document if isinstance(document, dict) else {}
    if not isinstance(fields.get("id"), str) or not isinstance(fields.get("name"), str):
        raise make_reply_error()
    metadata = fields.get("metadata")
    return CollectionInfo(fields["id"], fields["name"], metadata if isinstance(metadata, dict) else {})
