"""The few things Wikiholt asks of Chroma, by its REST interface (v2). Answers that make no sense are refusals."""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

import numpy as np

from wikiholt.model import Floats
from wikiholt.vectors.chroma.faults import ChromaRefused
from wikiholt.vectors.chroma.wire import Json, Reply, Wire

Mark = str | int | float | bool
"""A value that Chroma keeps with a collection or a row."""

INDEX = {"hnsw": {"space": "cosine", "ef_construction": 150, "ef_search": 200, "max_neighbors": 24}}
_LISTED = 1000
_AT_ONCE = 5000


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as Chroma knows it."""

    id: str
    name: str
    dimension: int | None
    marks: Mapping[str, Mark]


@dataclass(frozen=True, slots=True)
class Row:
    """A row by its id, with what is kept beside it."""

    id: str
    marks: Mapping[str, Mark] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """For each vector that was asked for the nearest rows, nearest first; and who answered."""

    rows: Sequence[Sequence[Row]]
    incarnation: str
    fresh: bool


class Api:
    """One database of one tenant of a Chroma. `patience` is for everything nobody waits for."""

    def __init__(self, wire: Wire, tenant: str, database: str, patience: float) -> None:
        self._wire = wire
        self._tenant = tenant
        self._database = database
        self._base = f"/api/v2/tenants/{quote(tenant, '')}/databases/{quote(database, '')}/collections"
        self._patience = patience

    def heartbeat(self, timeout: float) -> str:
        """Raise unless Chroma answers; returns which incarnation of it did."""
        return self._wire.ask("GET", "/api/v2/heartbeat", timeout=timeout).incarnation

    def version(self) -> str:
        return str(self._ask("GET", "/api/v2/version").body)

    def prepare(self) -> None:
        """Have the tenant and the database, which may be there already."""
        for path, name in (("/api/v2/tenants", self._tenant), (self._base.rsplit("/", 2)[0], self._database)):
            try:
                self._ask("GET", f"{path}/{quote(name, '')}")
            except ChromaRefused as refusal:
                if refusal.answered != 404:
                    raise
                self._ask("POST", path, {"name": name})

    def find(self, name: str) -> Collection | None:
        try:
            return _collection(self._ask("GET", f"{self._base}/{quote(name, '')}").body)
        except ChromaRefused as refusal:
            if refusal.answered == 404:
                return None
            raise

    def all(self) -> Iterator[Collection]:
        offset = 0
        while True:
            listed = self._ask("GET", f"{self._base}?limit={_LISTED}&offset={offset}").body
            if not isinstance(listed, list):
                raise _nonsense()
            yield from (_collection(each) for each in listed)
            if len(listed) < _LISTED:
                return
            offset += _LISTED

    def create(self, name: str, marks: Mapping[str, Mark]) -> Collection:
        body = {"name": name, "metadata": dict(marks), "configuration": INDEX, "get_or_create": False}
        return _collection(self._ask("POST", self._base, body).body)

    def rows_of(self, found: Collection) -> "Rows":
        """The rows of this collection, and no way to those of another."""
        return Rows(self._ask, f"{self._base}/{found.id}")

    def drop(self, name: str) -> None:
        """Delete a collection; one that is not there is fine."""
        try:
            self._ask("DELETE", f"{self._base}/{quote(name, '')}")
        except ChromaRefused as refusal:
            if refusal.answered != 404:
                raise

    def tidy(self) -> None:
        """Have our own child remove from the disk what collections left behind that are gone."""
        self._ask("POST", "/api/v2/wikiholt/tidy")

    def renew(self) -> None:
        """Have our own child begin anew, with its directory's files set aside."""
        self._ask("POST", "/api/v2/wikiholt/renew")

    def leave(self) -> bool:
        """Tell our own child that this process needs it no more; whether it ends now, since nobody else does."""
        return _field(self._ask("POST", "/api/v2/wikiholt/leave", timeout=2.0).body, "ending") is True

    def _ask(self, method: str, path: str, body: Json = None, timeout: float | None = None) -> Reply:
        return self._wire.ask(method, path, body, timeout=timeout or self._patience)


class Rows:
    """The rows of one collection: whoever holds this can ask no other."""

    def __init__(self, ask: Callable[..., Reply], at: str) -> None:
        self._ask = ask
        self._at = at

    def change(self, marks: Mapping[str, Mark], name: str | None = None) -> None:
        """Give the collection other marks, and another name if there is one."""
        self._ask("PUT", f"{self._at}", {"new_metadata": dict(marks), "new_name": name})

    def count(self) -> int:
        counted = self._ask("GET", f"{self._at}/count").body
        if not isinstance(counted, int):
            raise _nonsense()
        return counted

    def put(
        self,
        ids: Sequence[str],
        vectors: Floats,
        marks: Sequence[Mapping[str, Mark]] | None,
        texts: Sequence[str] | None,
    ) -> None:
        """Add rows, or replace those that have one of these ids."""
        packed = [base64.b64encode(np.ascontiguousarray(row, "<f4").tobytes()).decode() for row in vectors]
        body = {"ids": ids, "embeddings": packed, "metadatas": marks, "documents": texts}
        self._ask("POST", f"{self._at}/upsert", body)

    def take_out(self, which: Mapping[str, Json]) -> None:
        """Remove the rows with these `ids`, or those for which `where` holds."""
        self._ask("POST", f"{self._at}/delete", which)

    def all(self, *, with_marks: bool) -> Iterator[Row]:
        """Every row, in no particular order."""
        offset = 0
        while True:
            body = {"include": ["metadatas"] if with_marks else [], "limit": _AT_ONCE, "offset": offset}
            page = self._ask("POST", f"{self._at}/get", body).body
            found = _rows(_field(page, "ids"), _field(page, "metadatas") if with_marks else None)
            yield from found
            if len(found) < _AT_ONCE:
                return
            offset += _AT_ONCE

    def nearest(self, vectors: Floats, limit: int, *, with_marks: bool, timeout: float | None = None) -> Found:
        body = {
            "query_embeddings": vectors.tolist(),
            "n_results": limit,
            "include": ["metadatas"] if with_marks else [],
        }
        reply = self._ask("POST", f"{self._at}/query", body, timeout)
        ids = _field(reply.body, "ids")
        marks = _field(reply.body, "metadatas") if with_marks else [None] * len(vectors)
        if not isinstance(ids, list) or not isinstance(marks, list) or not len(ids) == len(marks) == len(vectors):
            raise _nonsense()
        rows = [_rows(each, beside) for each, beside in zip(ids, marks, strict=True)]
        return Found(rows, reply.incarnation, reply.fresh)


def _nonsense() -> ChromaRefused:
    return ChromaRefused("What answers there is no Chroma, or one of another kind: its answer makes no sense.")


def _field(document: Json, name: str) -> Json:
    if not isinstance(document, dict):
        raise _nonsense()
    return document.get(name)


def _collection(document: Json) -> Collection:
    found, name, marks = _field(document, "id"), _field(document, "name"), _field(document, "metadata")
    dimension = _field(document, "dimension")
    if not isinstance(found, str) or not isinstance(name, str) or not isinstance(dimension, int | None):
        raise _nonsense()
    return Collection(found, name, dimension, marks if isinstance(marks, dict) else {})


def _rows(ids: Json, marks: Json) -> list[Row]:
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise _nonsense()
    if marks is None:
        return [Row(each) for each in ids]
    if not isinstance(marks, list) or len(marks) != len(ids):
        raise _nonsense()
    return [Row(each, beside if isinstance(beside, dict) else {}) for each, beside in zip(ids, marks, strict=True)]
