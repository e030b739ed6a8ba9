"""A shared collection of a Chroma that runs somewhere, by its REST interface; chromadb itself is not needed."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np

from wikiholt.errors import InvalidImport
from wikiholt.importing.chroma import RETRY_HINT, ImportedCollection, parse_batch, require_collection
from wikiholt.importing.shared import SharedRows, parse_json
from wikiholt.model import FloatArray

_BATCH_ROWS = 500
_MAX_RESPONSE_BYTES = 1 << 28
"""Bytes an answer may have."""


class _ChromaNoRedirect(HTTPRedirectHandler):
    """A token is for the server that was named, and no other."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ChromaServer:
    """`patience` is for one answer."""

    url: str
    target: ImportedCollection = field(default_factory=ImportedCollection)
    token: str = field(default="", repr=False)
    timeout_s: float = 120.0

    @property
    def name(self) -> str:
        address = urlsplit(self.url)
        return f"{self.target.collection} of Chroma at {address.hostname}:{address.port or 80}"

    def iter_rows(self) -> SharedRows:
        collections = self._list_collections()
        require_collection(self.target.collection, sorted(collections))
        found = collections[self.target.collection]
        told = found.get("metadata")
        base = f"{self._get_base_path()}/{quote(str(found.get('id')), '')}"
        count = self._send_request(f"{base}/count")
        seen = 0
        while True:
            body = {"limit": _BATCH_ROWS, "offset": seen, "include": ["documents", "metadatas", "embeddings"]}
            got = self._send_request(f"{base}/get", body)
            if not isinstance(got, dict) or not isinstance(got.get("ids"), list):
                raise _build_response_error()
            rows = {**got, "texts": got.get("documents")}
            yield from parse_batch(rows, _parse_vectors(got.get("embeddings")), told if isinstance(told, dict) else {})
            seen += len(got["ids"])
            if len(got["ids"]) < _BATCH_ROWS:
                break
        if seen != count:
            raise InvalidImport(
                f"Chroma counts {count} rows and gave {seen}", hint="stop whoever writes to it and try again"
            )

    def _get_base_path(self) -> str:
        which = self.target
        return f"/api/v2/tenants/{quote(which.tenant, '')}/databases/{quote(which.database, '')}/collections"

    def _list_collections(self) -> Mapping[str, Mapping[str, object]]:
        found: dict[str, Mapping[str, object]] = {}
        while True:
            listed = self._send_request(f"{self._get_base_path()}?limit={_BATCH_ROWS}&offset={len(found)}")
            if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
                raise _build_response_error()
            before = len(found)
            found |= {str(each.get("name")): each for each in listed}
            if len(listed) < _BATCH_ROWS or len(found) == before:
                return found

    def _send_request(self, path: str, body: Mapping[str, object] | None = None) -> object:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers |= {"Authorization": f"Bearer {self.token}", "X-Chroma-Token": self.token}
        sent = None if body is None else json.dumps(body).encode()
        try:
            request = Request(self.url.rstrip("/") + path, sent, headers)  # noqa: S310 - http or https, see `opened`
            with build_opener(_ChromaNoRedirect).open(request, timeout=self.timeout_s) as answer:
                content = answer.read(_MAX_RESPONSE_BYTES + 1)
        except HTTPError as error:
            error.close()
            raise _build_refused_error(error.code) from error
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise InvalidImport(
                f"Chroma cannot be asked ({reason})", hint="check the address, and that it runs"
            ) from error
        if len(content) > _MAX_RESPONSE_BYTES:
            raise InvalidImport("Chroma's answer is too large", hint=RETRY_HINT)
        try:
            return parse_json(content)
        except ValueError as error:
            raise _build_response_error() from error


def _build_refused_error(status: int) -> InvalidImport:
    if status in (401, 403):
        return InvalidImport(f"Chroma wants another token ({status})", hint="set chroma.token")
    if status in (404, 405, 410):
        return InvalidImport(
            f"what answers there has no such tenant or database, or is older than Chroma 1.0 ({status})",
            hint="name them with --chroma-tenant and --chroma-database, or stop it and give its directory instead",
        )
    return InvalidImport(f"Chroma refused with {status}", hint=RETRY_HINT)


def _parse_vectors(embeddings: object) -> Sequence[FloatArray]:
    if not isinstance(embeddings, list):
        raise _build_response_error()
    try:
        return [np.array(vector, np.float32) for vector in embeddings]
    except (TypeError, ValueError) as error:
        raise _build_response_error() from error


def _build_response_error() -> InvalidImport:
    return InvalidImport("what answers there is no Chroma, or of another version", hint="check the address")
