"""The part of Chroma's REST API (v2) that Wikiholt uses. An invalid reply raises ChromaError."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import numpy as np

from wikiholt.caches.chroma.client import ChromaError, ChromaHttpClient, ChromaReply, JsonValue
from wikiholt.domain.index import FloatArray

MetadataValue = str | int | float | bool
"""A metadata value of a collection or a row."""

INDEX_CONFIGURATION = {"hnsw": {"space": "cosine", "ef_construction": 150, "ef_search": 200, "max_neighbors": 24}}
_COLLECTIONS_PER_REQUEST = 1000
_ROWS_PER_REQUEST = 5000
_LEAVE_TIMEOUT_S = 2.0
"""Short, because the end of a process waits for it. A child process that is not released exits later."""


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection as Chroma describes it."""

    id: str
    name: str
    dimension: int | None
    metadata: Mapping[str, MetadataValue]


@dataclass(frozen=True, slots=True)
class ChromaRow:
    """The id and the metadata of a row."""

    id: str
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NearestRows:
    """The nearest rows of each queried vector, nearest first, and which instance answered."""

    rows: Sequence[Sequence[ChromaRow]]
    instance_id: str
    is_new_connection: bool


class ChromaApi:
    """One database of one tenant. `timeout_s` in seconds is for writes, `read_timeout_s` for reads."""

    def __init__(
        self,
        client: ChromaHttpClient,
        tenant: str,
        database: str,
        timeout_s: float,
        read_timeout_s: float | None = None,
        *,
        path_prefix: str = "",
    ) -> None:
        """Without `read_timeout_s`, reads have the timeout of writes."""
        self._client = client
        self._path_prefix = path_prefix
        self._tenant = tenant
        self._database = database
        self._base = f"/api/v2/tenants/{quote(tenant, '')}/databases/{quote(database, '')}/collections"
        self._timeout_s = timeout_s
        self._read_timeout_s = read_timeout_s or timeout_s

    def check_heartbeat(self, timeout_s: float) -> str:
        """Return the instance id of Chroma. Raises ChromaUnavailable or ChromaError if it does not respond."""
        return self._request("GET", "/api/v2/heartbeat", timeout_s=timeout_s).instance_id

    def get_version(self) -> str:
        return str(self._request("GET", "/api/v2/version").body)

    def ensure_database(self) -> None:
        """Create the tenant and the database if they do not exist."""
        for path, name in (("/api/v2/tenants", self._tenant), (self._base.rsplit("/", 2)[0], self._database)):
            try:
                self._request("GET", f"{path}/{quote(name, '')}")
            except ChromaError as error:
                if error.http_status != 404:
                    raise
                self._request("POST", path, {"name": name})

    def find_collection(self, name: str) -> CollectionInfo | None:
        try:
            return _parse_collection(self._request("GET", f"{self._base}/{quote(name, '')}").body)
        except ChromaError as error:
            if error.http_status == 404:
                return None
            raise

    def iter_collections(self) -> Iterator[CollectionInfo]:
        offset = 0
        while True:
            listed = self._request("GET", f"{self._base}?limit={_COLLECTIONS_PER_REQUEST}&offset={offset}").body
            if not isinstance(listed, list):
                raise _make_response_error()
            yield from (_parse_collection(document) for document in listed)
            if len(listed) < _COLLECTIONS_PER_REQUEST:
                return
            offset += _COLLECTIONS_PER_REQUEST

    def create_collection(self, name: str, metadata: Mapping[str, MetadataValue]) -> CollectionInfo:
        body = {"name": name, "metadata": dict(metadata), "configuration": INDEX_CONFIGURATION, "get_or_create": False}
        return _parse_collection(self._request("POST", self._base, body).body)

    def open_rows(self, collection: CollectionInfo) -> "CollectionRows":
        """Return access to the rows of this collection only."""
        return CollectionRows(self._request, f"{self._base}/{collection.id}")

    def delete_collection(self, name: str) -> None:
        """Delete a collection if it exists."""
        try:
            self._request("DELETE", f"{self._base}/{quote(name, '')}")
        except ChromaError as error:
            if error.http_status != 404:
                raise

    def remove_leftovers(self) -> None:
        """Make the child process remove files of deleted collections."""
        self._request("POST", "/api/v2/wikiholt/tidy")

    def request_reset(self) -> None:
        """Make the child process exit and start the next time with an empty directory."""
        self._request("POST", "/api/v2/wikiholt/renew")

    def release_child(self) -> bool:
        """Release the child process. Returns whether it exits now because no other process uses it."""
        reply = self._request("POST", "/api/v2/wikiholt/leave", timeout_s=_LEAVE_TIMEOUT_S)
        return _get_field(reply.body, "ending") is True

    def _request(self, method: str, path: str, body: JsonValue = None, timeout_s: float | None = None) -> ChromaReply:
        is_read = method == "GET" or path.endswith(("/get", "/query"))
        default_s = self._read_timeout_s if is_read else self._timeout_s
        return self._client.request(method, f"{self._path_prefix}{path}", body, timeout_s=timeout_s or default_s)


class CollectionRows:
    """The rows of one collection. It gives no access to other collections."""

    def __init__(self, request: Callable[..., ChromaReply], path: str) -> None:
        self._request = request
        self._path = path

    def update_collection(self, metadata: Mapping[str, MetadataValue], name: str | None = None) -> None:
        """Replace the metadata of the collection, and its name if given."""
        self._request("PUT", f"{self._path}", {"new_metadata": dict(metadata), "new_name": name})

    def count(self) -> int:
        count = self._request("GET", f"{self._path}/count").body
        if not isinstance(count, int):
            raise _make_response_error()
        return count

    def upsert(
        self,
        ids: Sequence[str],
        vectors: FloatArray,
        metadata: Sequence[Mapping[str, MetadataValue]] | None,
        texts: Sequence[str] | None,
    ) -> None:
        """Add rows, or replace those with the same id."""
        embeddings = [base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode() for row in vectors]
        body = {"ids": ids, "embeddings": embeddings, "metadatas": metadata, "documents": texts}
        self._request("POST", f"{self._path}/upsert", body)

    def delete(self, selector: Mapping[str, JsonValue]) -> None:
        """Delete the rows with these `ids`, or those that match `where`."""
        self._request("POST", f"{self._path}/delete", selector)

    def get_batch(self, limit: int, offset: int, include: Sequence[str]) -> Mapping[str, JsonValue]:
        """Return `ids` and the included columns of a range of rows, not validated except that `ids` is a list."""
        reply = self._request("POST", f"{self._path}/get", {"include": include, "limit": limit, "offset": offset}).body
        if not isinstance(reply, dict) or not isinstance(reply.get("ids"), list):
            raise _make_response_error()
        return reply

    def iter_rows(self, *, with_metadata: bool) -> Iterator[ChromaRow]:
        """Yield every row, in no particular order."""
        offset = 0
        while True:
            batch = self.get_batch(_ROWS_PER_REQUEST, offset, ["metadatas"] if with_metadata else [])
            rows = _parse_rows(batch["ids"], batch.get("metadatas") if with_metadata else None)
            yield from rows
            if len(rows) < _ROWS_PER_REQUEST:
                return
            offset += _ROWS_PER_REQUEST

    def search(
        self, vectors: FloatArray, limit: int, *, with_metadata: bool, timeout_s: float | None = None
    ) -> NearestRows:
        """Return the `limit` nearest rows of each vector."""
        body = {
            "query_embeddings": vectors.tolist(),
            "n_results": limit,
            "include": ["metadatas"] if with_metadata else [],
        }
        reply = self._request("POST", f"{self._path}/query", body, timeout_s)
        ids = _get_field(reply.body, "ids")
        metadata = _get_field(reply.body, "metadatas") if with_metadata else [None] * len(vectors)
        if not isinstance(ids, list) or not isinstance(metadata, list) or not len(ids) == len(metadata) == len(vectors):
            raise _make_response_error()
        rows = [_parse_rows(row_ids, row_metadata) for row_ids, row_metadata in zip(ids, metadata, strict=True)]
        return NearestRows(rows, reply.instance_id, reply.is_new_connection)


def _make_response_error() -> ChromaError:
    return ChromaError("The server is not Chroma, or an incompatible version: the reply is invalid.")


def _get_field(document: JsonValue, name: str) -> JsonValue:
    if not isinstance(document, dict):
        raise _make_response_error()
    return document.get(name)


def _parse_collection(document: JsonValue) -> CollectionInfo:
    collection_id, name = _get_field(document, "id"), _get_field(document, "name")
    metadata, dimension = _get_field(document, "metadata"), _get_field(document, "dimension")
    if not isinstance(collection_id, str) or not isinstance(name, str) or not isinstance(dimension, int | None):
        raise _make_response_error()
    return CollectionInfo(collection_id, name, dimension, metadata if isinstance(metadata, dict) else {})


def _parse_rows(ids: JsonValue, metadata: JsonValue) -> list[ChromaRow]:
    if not isinstance(ids, list) or not all(isinstance(row_id, str) for row_id in ids):
        raise _make_response_error()
    if metadata is None:
        return [ChromaRow(row_id) for row_id in ids]
    if not isinstance(metadata, list) or len(metadata) != len(ids):
        raise _make_response_error()
    return [
        ChromaRow(row_id, row_metadata if isinstance(row_metadata, dict) else {})
        for row_id, row_metadata in zip(ids, metadata, strict=True)
    ]
