"""Push webhooks of git hosts: a signed word that a repository has changed.

The answer to a wiki that is not there, to one that takes no webhooks and to a wrong signature is the same, and takes
the same time.
"""

import hmac
import secrets
from hashlib import sha256
from typing import Annotated

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.errors import Unauthorized
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.indexing import ChangeAcceptedDocument
from wikiholt.surfaces.http.parameters import NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import RequestContextDep

webhook_router = APIRouter(prefix="/api/v1", tags=["index"])

_UNUSABLE_SECRET = secrets.token_hex(16)
_HEX_SIGNATURE_HEADERS = ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature")
_WEBHOOK_OPENAPI = {"security": [], "requestBody": {"content": {"application/json": {"schema": {}}}}}


@webhook_router.post("/webhook", status_code=202, response_model=ChangeAcceptedDocument, responses=describe_error_responses(413), openapi_extra=_WEBHOOK_OPENAPI)
async def webhook(request: Request, context: RequestContextDep, _: Annotated[NoParams, parse_query(NoParams)]) -> Response:
    """Take a push webhook of GitHub, Gitea, Forgejo or GitLab, signed with the wiki's setting webhook_secret."""
    claimed = await run_in_threadpool(context.identify_unverified)
    secret = claimed.settings.get("webhook_secret", "") if claimed else ""
    # Signed block by block: what somebody sends without a key is never held as a whole.
    right = hmac.new((secret or _UNUSABLE_SECRET).encode(), digestmod=sha256)
    async for block in request.stream():
        right.update(block)
    proved = is_signed(request, right.hexdigest(), secret or _UNUSABLE_SECRET) and bool(secret)
    if not await run_in_threadpool(context.notify_by_webhook, claimed, proved=proved):
        raise Unauthorized("This webhook is not signed as it should be.", hint="Check its address and its secret.")
    return make_json_response({"status": "woken"}, 202)


def is_signed(request: Request, expected: str, secret: str) -> bool:
    """Whether the request carries the right signature, or for GitLab the secret itself."""
    given = [_get_header_bytes(request, name) for name in _HEX_SIGNATURE_HEADERS]
    given.append(_get_header_bytes(request, "x-hub-signature-256").removeprefix(b"sha256="))
    signatures = [hmac.compare_digest(each, expected.encode()) for each in given]
    token = hmac.compare_digest(_get_header_bytes(request, "x-gitlab-token"), secret.encode())
    return any(signatures) or token


def _get_header_bytes(request: Request, name: str) -> bytes:
    """A header as it was sent; the framework hands it out as if it were Latin-1."""
    return request.headers.get(name, "").encode("latin-1")
