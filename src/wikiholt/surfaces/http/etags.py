"""Tags of what was answered, so that a client need not be sent the same twice."""

import re
from hashlib import blake2b
from typing import Annotated

from fastapi import Header
from starlette.responses import Response

from wikiholt.surfaces.http.bodies import PRIVATE_CACHE_CONTROL

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="A tag the answer is held under already.")]

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
