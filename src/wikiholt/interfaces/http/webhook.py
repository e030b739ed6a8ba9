"""The route for push webhooks of git hosts.

An unknown wiki, a wiki without a webhook secret and a wrong signature get the same response in the same time.
"""

import hmac
import secrets
from hashlib import sha256

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.api.operations.index import ChangeAcceptedDocument
from wikiholt.errors import Unauthorized
from wikiholt.interfaces.http.operation_routes import NoQuery
from wikiholt.interfaces.http.problem_details import describe_route
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import make_json_response

router = APIRouter(prefix="/api/v1", tags=["index"])

_UNUSABLE_SECRET = secrets.token_hex(16)
_HEX_SIGNATURE_HEADERS = ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature")
_WEBHOOK_OPENAPI = {"security": [], "requestBody": {"content": {"application/json": {"schema": {}}}}}


@router.post(
    "/webhook",
    operation_id="webhook_api_v1_webhook_post",
    status_code=202,
    openapi_extra=_WEBHOOK_OPENAPI,
    **describe_route(ChangeAcceptedDocument, 413),
)
async def receive_webhook(request: Request, context: RequestContextDep, _: NoQuery) -> Response:
    """Accept a push webhook of GitHub, Gitea, Forgejo or GitLab, signed with the wiki's setting webhook_secret."""
    claimed = await run_in_threadpool(context.identify_unverified)
    secret = claimed.settings.get("webhook_secret", "") if claimed else ""
    # Hash block by block: a body sent without a key is never kept in memory.
    signature = hmac.new((secret or _UNUSABLE_SECRET).encode(), digestmod=sha256)
    async for block in request.stream():
        signature.update(block)
    verified = is_signed(request, signature.hexdigest(), secret or _UNUSABLE_SECRET) and bool(secret)
    if not await run_in_threadpool(context.notify_by_webhook, claimed, verified=verified):
        raise Unauthorized("The webhook signature is invalid.", hint="Check the URL and the secret of the webhook.")
    return make_json_response({"status": "accepted"}, 202)


def is_signed(request: Request, expected: str, secret: str) -> bool:
    """Whether the request has the expected signature or, for GitLab, the secret itself."""
    signatures = [_get_header_bytes(request, name) for name in _HEX_SIGNATURE_HEADERS]
    signatures.append(_get_header_bytes(request, "x-hub-signature-256").removeprefix(b"sha256="))
    # Compare all of them, so that the time does not depend on which one matches.
    matches = [hmac.compare_digest(signature, expected.encode()) for signature in signatures]
    token_matches = hmac.compare_digest(_get_header_bytes(request, "x-gitlab-token"), secret.encode())
    return any(matches) or token_matches


def _get_header_bytes(request: Request, name: str) -> bytes:
    """The bytes of a header; Starlette decodes headers as Latin-1."""
    return request.headers.get(name, "").encode("latin-1")
