"""The few things Wikiholt asks of Chroma, by its REST interface (v2). Answers that make no sense are refusals."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import numpy as np

from wikiholt.caches.chroma.client import ChromaError, ChromaHttpClient, ChromaReply, JsonValue
from wikiholt.domain.index import FloatArray

MetadataValue = str | int | float | bool
"""A value that Chroma keeps with a collection or a row."""

INDEX_CONFIGURATION = {"hnsw": {"space": "cosine", "ef_construction": 150, "ef_search": 200, "max_neighbors": 24}}
_COLLECTIONS_PER_REQUEST = 1000
_ROWS_PER_REQUEST = 5000


@dataclass(frozen=True, slots=True)
class CollectionInfo:
    """A collection as Chroma knows it."""

    id: str
    name: str
    dimension: int | None
    metadata: Mapping[str, MetadataValue]


@dataclass(frozen=True, slots=True)
class ChromaRow:
    """A row by its id, with what is kept beside it."""

    id: str
    metadata: Mapping[str, MetadataValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NearestRows:
    """For each vector that was asked for the nearest rows, nearest first; and who answered."""

    rows: Sequence[Sequence[ChromaRow]]
    instance_id: str
    is_new_connection: bool


class ChromaApi:
    """One database of one tenant of a Chroma. `patience` is for everything nobody waits for."""

    def __init__(self, client: ChromaHttpClient, tenant: str, database: str, timeout: float) -> None:
        self._client = client
        self._tenant = tenant
        self._database = database
        self._base = f"/api/v2/tenants/{quote(tenant, '')}/databases/{quote(database, '')}/collections"
        self._timeout = timeout

    def check_heartbeat(self, timeout: float) -> str:
        """Raise unless Chroma answers; returns which incarnation of it did."""
        return self._client.request("GET", "/api/v2/heartbeat", timeout=timeout).instance_id

    def get_version(self) -> str:
        return str(self._request("GET", "/api/v2/version").body)

    def ensure_database(self) -> None:
        """Have the tenant and the database, which may be there already."""
        for path, name in (("/api/v2/tenants", self._tenant), (self._base.rsplit("/", 2)[0], self._database)):
            try:
                self._request("GET", f"{path}/{quote(name, '')}")
            except ChromaError as refusal:
                if refusal.http_status != 404:
                    raise
                self._request("POST", path, {"name": name})

    def find_collection(self, name: str) -> CollectionInfo | None:
        try:
            return _parse_collection(self._request("GET", f"{self._base}/{quote(name, '')}").body)
        except ChromaError as refusal:
            if refusal.http_status == 404:
                return None
            raise

    def iter_collections(self) -> Iterator[CollectionInfo]:
        offset = 0
        while True:
            listed = self._request("GET", f"{self._base}?limit={_COLLECTIONS_PER_REQUEST}&offset={offset}").body
            if not isinstance(listed, list):
                raise _make_response_error()
            yield from (_parse_collection(each) for each in listed)
            if len(listed) < _COLLECTIONS_PER_REQUEST:
                return
            offset += _COLLECTIONS_PER_REQUEST

    def create_collection(self, name: str, metadata: Mapping[str, MetadataValue]) -> CollectionInfo:
        body = {"name": name, "metadata": dict(metadata), "configuration": INDEX_CONFIGURATION, "get_or_create": False}
        return _parse_collection(self._request("POST", self._base, body).body)

    def open_rows(self, collection: CollectionInfo) -> "CollectionRows":
        """The rows of this collection, and no way to those of another."""
        return CollectionRows(self._request, f"{self._base}/{collection.id}")

    def delete_collection(self, name: str) -> None:
        """Delete a collection; one that is not there is fine."""
        try:
            self._request("DELETE", f"{self._base}/{quote(name, '')}")
        except ChromaError as refusal:
            if refusal.http_status != 404:
                raise

    def remove_leftovers(self) -> None:
        """Have our own child remove from the disk what collections left behind that are gone."""
        self._request("POST", "/api/v2/wikiholt/tidy")

    def request_reset(self) -> None:
        """Have our own child begin anew, with its directory's files set aside."""
        self._request("POST", "/api/v2/wikiholt/renew")

    def release_child(self) -> bool:
        """Tell our own child that this process needs it no more; whether it ends now, since nobody else does."""
        return _get_field(self._request("POST", "/api/v2/wikiholt/leave", timeout=2.0).body, "ending") is True

    def _request(self, method: str, path: str, body: JsonValue = None, timeout: float | None = None) -> ChromaReply:
        return self._client.request(method, path, body, timeout=timeout or self._timeout)


class CollectionRows:
    """The rows of one collection: whoever holds this can ask no other."""

    def __init__(self, request: Callable[..., ChromaReply], path: str) -> None:
        self._request = request
        self._path = path

    def update_collection(self, metadata: Mapping[str, MetadataValue], name: str | None = None) -> None:
        """Give the collection other marks, and another name if there is one."""
        self._request("PUT", f"{self._path}", {"new_metadata": dict(metadata), "new_name": name})

    def count(self) -> int:
        counted = self._request("GET", f"{self._path}/count").body
        if not isinstance(counted, int):
            raise _make_response_error()
        return counted

    def upsert(
        self,
        ids: Sequence[str],
        vectors: FloatArray,
        metadata: Sequence[Mapping[str, MetadataValue]] | None,
        texts: Sequence[str] | None,
    ) -> None:
        """Add rows, or replace those that have one of these ids."""
        packed = [base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode() for row in vectors]
        body = {"ids": ids, "embeddings": packed, "metadatas": metadata, "documents": texts}
        self._request("POST", f"{self._path}/upsert", body)

    def delete(self, selector: Mapping[str, JsonValue]) -> None:
        """Remove the rows with these `ids`, or those for which `where` holds."""
        self._request("POST", f"{self._path}/delete", selector)

    def iter_rows(self, *, with_metadata: bool) -> Iterator[ChromaRow]:
        """Every row, in no particular order."""
        offset = 0
        while True:
            body = {"include": ["metadatas"] if with_metadata else [], "limit": _ROWS_PER_REQUEST, "offset": offset}
            page = self._request("POST", f"{self._path}/get", body).body
            found = _parse_rows(_get_field(page, "ids"), _get_field(page, "metadatas") if with_metadata else None)
            yield from found
            if len(found) < _ROWS_PER_REQUEST:
                return
            offset += _ROWS_PER_REQUEST

    def search(
        self, vectors: FloatArray, limit: int, *, with_metadata: bool, timeout: float | None = None
    ) -> NearestRows:
        body = {
            "query_embeddings": vectors.tolist(),
            "n_results": limit,
            "include": ["metadatas"] if with_metadata else [],
        }
        reply = self._request("POST", f"{self._path}/query", body, timeout)
        ids = _get_field(reply.body, "ids")
        marks = _get_field(reply.body, "metadatas") if with_metadata else [None] * len(vectors)
        if not isinstance(ids, list) or not isinstance(marks, list) or not len(ids) == len(marks) == len(vectors):
            raise _make_response_error()
        rows = [_parse_rows(each, beside) for each, beside in zip(ids, marks, strict=True)]
        return NearestRows(rows, reply.instance_id, reply.is_new_connection)


def _make_response_error() -> ChromaError:
    return ChromaError("What answers there is no Chroma, or one of another kind: its answer makes no sense.")


def _get_field(document: JsonValue, name: str) -> JsonValue:
    if not isinstance(document, dict):
        raise _make_response_error()
    return document.get(name)


def _parse_collection(document: JsonValue) -> CollectionInfo:
    found, name, marks = _get_field(document, "id"), _get_field(document, "name"), _get_field(document, "metadata")
    dimension = _get_field(document, "dimension")
    if not isinstance(found, str) or not isinstance(name, str) or not isinstance(dimension, int | None):
        raise _make_response_error()
    return CollectionInfo(found, name, dimension, marks if isinstance(marks, dict) else {})


def _parse_rows(ids: JsonValue, metadata: JsonValue) -> list[ChromaRow]:
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise _make_response_error()
    if metadata is None:
        return [ChromaRow(each) for each in ids]
    if not isinstance(metadata, list) or len(metadata) != len(ids):
        raise _make_response_error()
    return [
        ChromaRow(each, beside if isinstance(beside, dict) else {}) for each, beside in zip(ids, metadata, strict=True)
    ]
