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
from wikiholt.importing.chroma import AGAIN, Named, batch, require
from wikiholt.importing.shared import SharedRows, parsed
from wikiholt.model import Floats

_AT_ONCE = 500
_LARGEST = 1 << 28
"""Bytes an answer may have."""


class _NoRedirect(HTTPRedirectHandler):
    """A token is for the server that was named, and no other."""

    def redirect_request(self, *_: object) -> None:
        return None


@dataclass(frozen=True, slots=True)
class ChromaServer:
    """`patience` is for one answer."""

    url: str
    which: Named = field(default_factory=Named)
    token: str = field(default="", repr=False)
    patience: float = 120.0

    @property
    def name(self) -> str:
        address = urlsplit(self.url)
        return f"{self.which.collection} of Chroma at {address.hostname}:{address.port or 80}"

    def rows(self) -> SharedRows:
        collections = self._collections()
        require(self.which.collection, sorted(collections))
        found = collections[self.which.collection]
        told = found.get("metadata")
        base = f"{self._base()}/{quote(str(found.get('id')), '')}"
        count = self._ask(f"{base}/count")
        seen = 0
        while True:
            body = {"limit": _AT_ONCE, "offset": seen, "include": ["documents", "metadatas", "embeddings"]}
            got = self._ask(f"{base}/get", body)
            if not isinstance(got, dict) or not isinstance(got.get("ids"), list):
                raise _nonsense()
            rows = {**got, "texts": got.get("documents")}
            yield from batch(rows, _vectors(got.get("embeddings")), told if isinstance(told, dict) else {})
            seen += len(got["ids"])
            if len(got["ids"]) < _AT_ONCE:
                break
        if seen != count:
            raise InvalidImport(
                f"Chroma counts {count} rows and gave {seen}", hint="stop whoever writes to it and try again"
            )

    def _base(self) -> str:
        which = self.which
        return f"/api/v2/tenants/{quote(which.tenant, '')}/databases/{quote(which.database, '')}/collections"

    def _collections(self) -> Mapping[str, Mapping[str, object]]:
        found: dict[str, Mapping[str, object]] = {}
        while True:
            listed = self._ask(f"{self._base()}?limit={_AT_ONCE}&offset={len(found)}")
            if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
                raise _nonsense()
            before = len(found)
            found |= {str(each.get("name")): each for each in listed}
            if len(listed) < _AT_ONCE or len(found) == before:
                return found

    def _ask(self, path: str, body: Mapping[str, object] | None = None) -> object:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers |= {"Authorization": f"Bearer {self.token}", "X-Chroma-Token": self.token}
        sent = None if body is None else json.dumps(body).encode()
        try:
            request = Request(self.url.rstrip("/") + path, sent, headers)  # noqa: S310 - http or https, see `opened`
            with build_opener(_NoRedirect).open(request, timeout=self.patience) as answer:
                content = answer.read(_LARGEST + 1)
        except HTTPError as error:
            error.close()
            raise _refused(error.code) from error
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise InvalidImport(
                f"Chroma cannot be asked ({reason})", hint="check the address, and that it runs"
            ) from error
        if len(content) > _LARGEST:
            raise InvalidImport("Chroma's answer is too large", hint=AGAIN)
        try:
            return parsed(content)
        except ValueError as error:
            raise _nonsense() from error


def _refused(status: int) -> InvalidImport:
    if status in (401, 403):
        return InvalidImport(f"Chroma wants another token ({status})", hint="set chroma.token")
    if status in (404, 405, 410):
        return InvalidImport(
            f"what answers there has no such tenant or database, or is older than Chroma 1.0 ({status})",
            hint="name them with --chroma-tenant and --chroma-database, or stop it and give its directory instead",
        )
    return InvalidImport(f"Chroma refused with {status}", hint=AGAIN)


def _vectors(embeddings: object) -> Sequence[Floats]:
    if not isinstance(embeddings, list):
        raise _nonsense()
    try:
        return [np.array(vector, np.float32) for vector in embeddings]
    except (TypeError, ValueError) as error:
        raise _nonsense() from error


def _nonsense() -> InvalidImport:
    return InvalidImport("what answers there is no Chroma, or of another version", hint="check the address")
