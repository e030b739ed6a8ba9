"""Tags of what was answered, so that a client need not be sent the same twice."""

import re
from hashlib import blake2b
from typing import Annotated

from fastapi import Header
from starlette.responses import Response

from wikiholt.surfaces.http.bodies import PRIVATE

Held = Annotated[str | None, Header(alias="If-None-Match", description="A tag the answer is held under already.")]

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


def weak(*parts: object) -> str:
    """The tag of an answer made from these; equal parts mean an answer that says the same."""
    return f'W/"{blake2b(repr(parts).encode("utf-8", "replace"), digest_size=12).hexdigest()}"'


def names(header: str, tag: str) -> bool:
    """Whether If-None-Match names the tag, in the weak comparison that header asks for."""
    if header.strip() == "*":
        return True
    found = _TAG.fullmatch(tag)
    return found is not None and found[1] in _TAG.findall(header)


def not_modified(tag: str) -> Response:
    return Response(status_code=304, headers={"ETag": tag, "Cache-Control": PRIVATE})
