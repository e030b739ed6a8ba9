"""Routes about a wiki's index: status, reindex, change notification, backups and push webhooks."""

import hmac
import secrets
from hashlib import sha256
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.api.documents.admin_documents import (
    ActivityDocument,
    BackupDocument,
    ErrorDocument,
    IndexStatusDocument,
    ReindexEstimateDocument,
    build_backup_document,
    build_index_status,
)
from wikiholt.api.documents.common import build_document
from wikiholt.api.operations.parameters import Flag, Parameters, Until
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.wiki import Scope
from wikiholt.errors import IndexMissing, NothingIndexed, Unauthorized, WikiholtError
from wikiholt.interfaces.http.problem_details import describe_route
from wikiholt.interfaces.http.query_params import NoQuery, parse_query
from wikiholt.interfaces.http.request_context import IndexControl, RequestContextDep
from wikiholt.interfaces.http.responses import NO_STORE, make_json_response
from wikiholt.sync.reindex_job import ReindexJob, ReindexState

router = APIRouter(prefix="/api/v1", tags=["index"])

_STATUS_BY_STATE: dict[ReindexState, Literal["idle", "in_progress", "complete", "error"]] = {
    ReindexState.NONE: "idle",
    ReindexState.QUEUED: "in_progress",
    ReindexState.RUNNING: "in_progress",
    ReindexState.COMPLETE: "complete",
    ReindexState.FAILED: "error",
}
_FAILED_MESSAGE = "The reindex failed; the service log has the reason."
_ESTIMATE_TIME_LIMIT_S = 15.0
"""How long a dry run reads pages; for a wiki that takes longer it extrapolates."""


class ReindexParams(Parameters):
    """Parameters of a reindex."""

    dry_run: Flag = Field(False, description="Only estimate the cost; nothing is written.")


class IndexDocument(IndexStatusDocument):
    """Status of a wiki's index, with the sync state and the current activity."""

    slug: str
    activity: ActivityDocument | None
    waiting: bool
    missing: bool
    watched: bool


class ReindexJobDocument(TypedDict):
    """The last reindex; a superset of the fields of otterwiki-semantic-search."""

    status: Literal["idle", "in_progress", "complete", "error"]
    started_at: str | None
    completed_at: str | None
    pages_indexed: int
    pages_total: int
    chunks_created: int
    problems: int
    revision: str | None
    resumed: int
    error_message: str | None
    error_code: str | None


class ReindexStartedDocument(TypedDict):
    """The reindex has started."""

    status: Literal["started"]


class ChangeAcceptedDocument(TypedDict):
    """The notification is accepted; the wiki is synced before wikis that are only due."""

    status: Literal["accepted"]


@router.get("/status", operation_id="status_api_v1_status_get", **describe_route(IndexDocument))
def get_status(context: RequestContextDep, _: NoQuery) -> Response:
    """Show what is indexed, how fresh it is, which pages have problems, and the current activity."""
    return make_json_response(_build_index_document(context.open_index(Scope.READ)))


@router.post(
    "/reindex",
    operation_id="reindex_api_v1_reindex_post",
    status_code=202,
    **describe_route(
        ReindexStartedDocument,
        409,
        others={200: {"model": ReindexEstimateDocument, "description": "The estimated cost (dry_run)."}},
    ),
)
def start_reindex(
    request: Request, context: RequestContextDep, params: Annotated[ReindexParams, parse_query(ReindexParams)]
) -> Response:
    """Rebuild the index; the old one answers until the new one is ready. With dry_run, estimate the cost."""
    index = context.open_index(Scope.ADMIN)
    if params.dry_run:
        estimate = index.session.handle.estimate_reindex(_ESTIMATE_TIME_LIMIT_S)
        return make_json_response(build_document(ReindexEstimateDocument, estimate), headers=NO_STORE)
    index.start_reindex()
    location = f"{request.scope.get('root_path', '')}/api/v1/reindex/status"
    return make_json_response({"status": "started"}, 202, {"Location": location})


@router.get(
    "/reindex/status", operation_id="reindex_status_api_v1_reindex_status_get", **describe_route(ReindexJobDocument)
)
def get_reindex_status(context: RequestContextDep, _: NoQuery) -> Response:
    """Show the progress of the last reindex; it survives a restart of the service."""
    job = context.open_index(Scope.READ).get_reindex_job()
    return make_json_response(_build_job_document(job), headers=NO_STORE)


@router.post("/wake", operation_id="wake_api_v1_wake_post", status_code=202, **describe_route(ChangeAcceptedDocument))
def notify_changed(context: RequestContextDep, _: NoQuery) -> Response:
    """Check the repository for changes now."""
    context.open_wiki(Scope.WRITE).notify_changed()
    return make_json_response({"status": "accepted"}, 202)


def _build_index_document(index: IndexControl) -> IndexDocument:
    # The index is read last: if no sync waits or runs by then, its status contains what the last sync has done.
    sync_state, activity = index.get_sync_state(), index.get_activity()
    status = index.session.handle.get_status()
    error = status.error or sync_state.error
    if isinstance(error, IndexMissing | NothingIndexed):
        # A sync that failed says why. Before and during the first sync, a missing index is no error.
        error = sync_state.error or (None if activity or sync_state.waiting else error)
    return {
        "slug": index.session.wiki.slug,
        **build_index_status(status, _build_public_error_document(error) if error else None),
        "activity": build_document(ActivityDocument, activity) if activity else None,
        "waiting": sync_state.waiting,
        "missing": sync_state.missing,
        "watched": sync_state.watched,
    }


def _build_public_error_document(error: WikiholtError) -> ErrorDocument:
    message, hint = get_public_message(error)
    return {"code": error.code, "message": message, "hint": hint}


def _build_job_document(job: ReindexJob) -> ReindexJobDocument:
    failed = job.state is ReindexState.FAILED
    return build_document(
        ReindexJobDocument,
        job,
        status=_STATUS_BY_STATE[job.state],
        completed_at=job.finished_at,
        pages_indexed=job.pages_done,
        chunks_created=job.chunks_embedded,
        error_message=_FAILED_MESSAGE if failed else None,
        error_code=job.error_code if failed else None,
    )


# Backups; every route requires an admin key


backups_router = APIRouter(prefix="/api/v1", tags=["backups"])


class RestoreParams(Parameters):
    """Parameters of a restore."""

    at: Until | None = Field(
        None,
        description="The newest backup up to this time: a date (end of day), a date with time, or 12h, 7d, 3w ago.",
    )


class BackupsDocument(TypedDict):
    """A wiki's backups, newest first; `error` says why the last scheduled backup failed."""

    backups: list[BackupDocument]
    total: int
    error: ErrorDocument | None


@backups_router.get("/backups", **describe_route(BackupsDocument))
def list_backups(context: RequestContextDep, _: NoQuery) -> Response:
    """List the wiki's backups."""
    index = context.open_index(Scope.ADMIN)
    backups = [build_backup_document(backup) for backup in index.session.handle.backups.list()]
    error = index.get_sync_state().backup_error
    document: BackupsDocument = {
        "backups": backups,
        "total": len(backups),
        "error": _build_public_error_document(error) if error else None,
    }
    return make_json_response(document, headers=NO_STORE)


@backups_router.post(
    "/backup", operation_id="back_up_api_v1_backup_post", status_code=201, **describe_route(BackupDocument, 409)
)
def create_backup(context: RequestContextDep, _: NoQuery) -> Response:
    """Back up the index; searches and syncs continue meanwhile."""
    return make_json_response(
        build_backup_document(context.open_wiki(Scope.ADMIN).handle.backups.create()), 201, NO_STORE
    )


@backups_router.post("/restore", operation_id="restore_api_v1_restore_post", **describe_route(BackupDocument, 404, 409))
def restore_backup(
    context: RequestContextDep, params: Annotated[RestoreParams, parse_query(RestoreParams)]
) -> Response:
    """Restore a backup, then sync it with the repository."""
    wiki = context.open_wiki(Scope.ADMIN)
    restored = wiki.handle.restore(params.at)
    wiki.notify_changed()
    return make_json_response(build_backup_document(restored), headers=NO_STORE)


# Push webhooks of git hosts. An unknown wiki, a wiki without a webhook secret and a wrong signature get the same
# response in the same time.


webhook_router = APIRouter(prefix="/api/v1", tags=["index"])

_UNUSABLE_SECRET = secrets.token_hex(16)
_HEX_SIGNATURE_HEADERS = ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature")
_WEBHOOK_OPENAPI = {"security": [], "requestBody": {"content": {"application/json": {"schema": {}}}}}


@webhook_router.post(
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
