"""JSON responses, ETags, and the limit on request bodies."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import Header
from pydantic_core import PydanticSerializationError, to_json
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

PRIVATE_CACHE_CONTROL = "private, no-cache"
"""Responses are private to the client: only its own cache may store them, and must revalidate."""

NO_STORE = {"Cache-Control": "no-store"}
"""The headers of a response that no cache may store."""


def encode_json(document: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Encode as compact JSON; a lone surrogate, which UTF-8 cannot encode, becomes a question mark."""
    try:
        return to_json(document)
    except PydanticSerializationError:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def make_json_response(
    document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None, etag: str = ""
) -> Response:
    """Make a JSON response; the document is not validated against its schema again."""
    all_headers = {"Cache-Control": PRIVATE_CACHE_CONTROL, **(headers or {})}
    if etag:
        all_headers["ETag"] = etag
    return Response(encode_json(document), status, all_headers, media_type="application/json")


def limit_body(scope: Scope, receive: Receive, limit_bytes: int) -> Receive:
    """A `receive` that raises HTTPException 413 once the announced or received body exceeds the limit."""
    received_bytes = 0
    announced = Headers(scope=scope).get("content-length", "")
    error = HTTPException(413, f"The body has more than {limit_bytes} bytes.")

    async def receive_limited() -> Message:
        nonlocal received_bytes
        if announced.isdecimal() and int(announced) > limit_bytes:
            raise error
        message = await receive()
        received_bytes += len(message.get("body", b""))
        if received_bytes > limit_bytes:
            raise error
        return message

    return receive_limited


# ETags and conditional requests


IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="The ETag of a response that the client has cached.")
]

_ETAG_PATTERN = re.compile(r'(?:W/)?"([^"]*)"')


def make_weak_etag(*parts: object) -> str:
    """Make the weak ETag of a response that depends on these parts only."""
    return f'W/"{blake2b(repr(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()}"'


def matches_etag(header: str, etag: str) -> bool:
    """Whether If-None-Match contains the ETag, by weak comparison."""
    if header.strip() == "*":
        return True
    match = _ETAG_PATTERN.fullmatch(etag)
    return match is not None and match[1] in _ETAG_PATTERN.findall(header)


def make_cached_response(etag: str, if_none_match: str | None, build: Callable[[], Mapping[str, Any]]) -> Response:
    """Make a response with this ETag: 304 if the client has it, else the document that `build` returns.

    A degraded result has no ETag: the same index may soon give a better one, so a client must not cache it.
    """
    if if_none_match and matches_etag(if_none_match, etag):
        return Response(status_code=304, headers={"ETag": etag, "Cache-Control": PRIVATE_CACHE_CONTROL})
    document = build()
    return make_json_response(document, etag="" if document.get("degraded") else etag)
