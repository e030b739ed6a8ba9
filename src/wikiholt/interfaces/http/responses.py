"""Bodies that are sent and bodies that are taken: JSON out, bounded bytes in."""

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any

from fastapi import Header
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Message, Receive, Scope

PRIVATE_CACHE_CONTROL = "private, no-cache"
"""What an answer holds is the visitor's own: only their browser may keep it, and asks before it uses it again."""


def encode_json(document: Mapping[str, Any]) -> bytes:
    """The document as compact JSON; half a surrogate pair, which no encoding holds, becomes a question mark."""
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")


def make_json_response(
    document: Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None, etag: str = ""
) -> Response:
    """A document that was made to fit its schema; it is not validated once more on the way out."""
    every = {"Cache-Control": PRIVATE_CACHE_CONTROL, **(headers or {})}
    if etag:
        every["ETag"] = etag
    return Response(encode_json(document), status, every, media_type="application/json")


def limit_body(scope: Scope, receive: Receive, limit_bytes: int) -> Receive:
    """The same body, refused as soon as it is known to be over the limit: when announced, or while it comes in."""
    taken = 0

    async def receive_some() -> Message:
        nonlocal taken
        announced = _get_content_length(scope)
        if announced is not None and announced > limit_bytes:
            raise _build_too_large_error(limit_bytes)
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > limit_bytes:
            raise _build_too_large_error(limit_bytes)
        return message

    return receive_some


def _get_content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


def _build_too_large_error(limit_bytes: int) -> HTTPException:
    return HTTPException(413, f"The body has more than {limit_bytes} bytes.")


# Tags of what was answered, so that a client need not be sent the same twice.


IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="A tag the answer is held under already.")
]

_ETAG_PATTERN = re.compile(r'(?:W/)?"([^"]*)"')


def make_weak_etag(*parts: object) -> str:
    """The tag of an answer made from these; equal parts mean an answer that says the same."""
    return f'W/"{blake2b(repr(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()}"'


def matches_etag(header: str, etag: str) -> bool:
    """Whether If-None-Match names the tag, in the weak comparison that header asks for."""
    if header.strip() == "*":
        return True
    found = _ETAG_PATTERN.fullmatch(etag)
    return found is not None and found[1] in _ETAG_PATTERN.findall(header)


def make_not_modified_response(etag: str) -> Response:
    return Response(status_code=304, headers={"ETag": etag, "Cache-Control": PRIVATE_CACHE_CONTROL})
