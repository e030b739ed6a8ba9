"""How a wiki's index stands, building it anew, and waking its sync."""

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

from wikiholt.domain.wiki import Scope
from wikiholt.errors import Unauthorized, WikiholtError
from wikiholt.interfaces.http.problem_details import describe_error_responses, get_public_message
from wikiholt.interfaces.http.query_params import Flag, NoParams, Until, parse_query
from wikiholt.interfaces.http.request_context import IndexControl, RequestContextDep
from wikiholt.interfaces.http.responses import make_json_response
from wikiholt.interfaces.schemas.admin_schemas import (
    BackupDocument,
    ErrorDocument,
    IndexHealthDocument,
    ProblemDocument,
    ReindexEstimateDocument,
    build_backup_document,
    build_estimate_document,
    build_health_document,
    build_problem_document,
)
from wikiholt.interfaces.schemas.common import format_date
from wikiholt.scheduler.reindex_job import ReindexJob, ReindexState
from wikiholt.scheduler.wiki_records import WikiActivity

router = APIRouter(prefix="/api/v1", tags=["index"])

_NO_STORE = {"Cache-Control": "no-store"}
_STATUS_BY_STATE: dict[ReindexState, Literal["idle", "in_progress", "complete", "error"]] = {
    ReindexState.NONE: "idle",
    ReindexState.QUEUED: "in_progress",
    ReindexState.RUNNING: "in_progress",
    ReindexState.COMPLETE: "complete",
    ReindexState.FAILED: "error",
}
_FAILED_MESSAGE = "The reindexing failed; the operator finds the reason in the service's log."
_ESTIMATE_TIME_LIMIT_S = 15.0
"""Seconds a dry run reads pages; of a wiki that takes longer it gives an estimate."""
NoQuery = Annotated[NoParams, parse_query(NoParams)]


class ReindexParams(NoParams):
    """What is to be done."""

    dry_run: Flag = Field(False, description="Only say what it would take; nothing is written.")


class ActivityDocument(TypedDict):
    """What is being done for the wiki just now, and how far it is."""

    kind: str
    since: str
    pages_done: int
    pages_total: int
    chunks_embedded: int


class IndexDocument(TypedDict):
    """How a wiki stands: what is indexed, how fresh that is, what could not be, and what is being done."""

    slug: str
    pages: int
    chunks: int
    problems: list[ProblemDocument]
    indexed_revision: str | None
    head_revision: str | None
    stale: bool
    synced_at: str | None
    generation: int | None
    version: int | None
    model: str | None
    disk_bytes: int
    error: ErrorDocument | None
    activity: ActivityDocument | None
    waiting: bool
    missing: bool
    health: IndexHealthDocument


class ReindexJobDocument(TypedDict):
    """The last reindexing; fields are those of otterwiki-semantic-search, and more."""

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
    """It has been started."""

    status: Literal["started"]


class ChangeAcceptedDocument(TypedDict):
    """The wiki will be looked at before those that are only due."""

    status: Literal["woken"]


@router.get("/status", response_model=IndexDocument, responses=describe_error_responses())
def status(context: RequestContextDep, _: NoQuery) -> Response:
    """Say what is indexed, how fresh it is, which pages have problems, and what is being done."""
    return make_json_response(_build_index_document(context.open_index(Scope.READ)))


@router.post(
    "/reindex",
    status_code=202,
    response_model=ReindexStartedDocument,
    responses=describe_error_responses(409)
    | {200: {"model": ReindexEstimateDocument, "description": "What it would take (dry_run)."}},
)
def reindex(
    request: Request, context: RequestContextDep, params: Annotated[ReindexParams, parse_query(ReindexParams)]
) -> Response:
    """Build the index anew beside the old one, which goes on answering; or say what that would take."""
    index = context.open_index(Scope.ADMIN)
    if params.dry_run:
        estimate = index.session.handle.estimate_reindex(_ESTIMATE_TIME_LIMIT_S)
        return make_json_response(build_estimate_document(estimate), headers=_NO_STORE)
    index.start_reindex()
    location = f"{request.scope.get('root_path', '')}/api/v1/reindex/status"
    return make_json_response({"status": "started"}, 202, {"Location": location})


@router.get("/reindex/status", response_model=ReindexJobDocument, responses=describe_error_responses())
def reindex_status(context: RequestContextDep, _: NoQuery) -> Response:
    """Say how the last reindexing stands; it outlives a restart of the service."""
    job = context.open_index(Scope.READ).get_reindex_job()
    return make_json_response(_build_job_document(job), headers=_NO_STORE)


@router.post("/wake", status_code=202, response_model=ChangeAcceptedDocument, responses=describe_error_responses())
def wake(context: RequestContextDep, _: NoQuery) -> Response:
    """Have the repository looked at now."""
    context.open_wiki(Scope.WRITE).notify_changed()
    return make_json_response({"status": "woken"}, 202)


def _build_index_document(index: IndexControl) -> IndexDocument:
    status, sync_state = index.session.handle.get_status(), index.get_sync_state()
    state = status.state
    error = status.error or sync_state.error
    activity = index.get_activity()
    return {
        "slug": index.session.wiki.slug,
        "pages": state.pages if state else 0,
        "chunks": state.chunks if state else 0,
        "problems": [build_problem_document(problem) for problem in status.problems],
        "indexed_revision": state.revision if state else None,
        "head_revision": status.head,
        "stale": status.stale,
        "synced_at": format_date(state.synced_at) if state else None,
        "generation": state.generation if state else None,
        "version": state.version if state else None,
        "model": state.recipe.fingerprint if state else None,
        "disk_bytes": status.disk_bytes,
        "error": _build_public_error_document(error) if error else None,
        "activity": _build_activity_document(activity) if activity else None,
        "waiting": sync_state.waiting,
        "missing": sync_state.missing,
        "health": build_health_document(status.health),
    }


def _build_public_error_document(error: WikiholtError) -> ErrorDocument:
    message, hint = get_public_message(error)
    return {"code": error.code, "message": message, "hint": hint}


def _build_activity_document(activity: WikiActivity) -> ActivityDocument:
    return {
        "kind": activity.kind,
        "since": format_date(activity.since),
        "pages_done": activity.pages_done,
        "pages_total": activity.pages_total,
        "chunks_embedded": activity.chunks_embedded,
    }


def _build_job_document(job: ReindexJob) -> ReindexJobDocument:
    failed = job.state is ReindexState.FAILED
    return {
        "status": _STATUS_BY_STATE[job.state],
        "started_at": format_date(job.started_at),
        "completed_at": format_date(job.finished_at),
        "pages_indexed": job.pages_done,
        "pages_total": job.pages_total,
        "chunks_created": job.chunks_embedded,
        "problems": job.problems,
        "revision": job.revision,
        "resumed": job.resumed,
        "error_message": _FAILED_MESSAGE if failed else None,
        "error_code": job.error_code if failed else None,
    }


# A wiki's backups: made, listed, restored. All of it takes an admin's key.


backups_router = APIRouter(prefix="/api/v1", tags=["backups"])


class RestoreParams(NoParams):
    """Which backup."""

    at: Until | None = Field(
        None, description="The newest not taken after this: a date (its end), a date with time, or 12h, 7d, 3w ago."
    )


class BackupsDocument(TypedDict):
    """A wiki's backups, newest first; `error` says why the last one by schedule could not be made."""

    backups: list[BackupDocument]
    total: int
    error: ErrorDocument | None


@backups_router.get("/backups", response_model=BackupsDocument, responses=describe_error_responses())
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
    return make_json_response(document, headers=_NO_STORE)


@backups_router.post("/backup", status_code=201, response_model=BackupDocument, responses=describe_error_responses(409))
def back_up(context: RequestContextDep, _: NoQuery) -> Response:
    """Back the index up as it is now; it goes on answering, and being written, meanwhile."""
    return make_json_response(
        build_backup_document(context.open_wiki(Scope.ADMIN).handle.backups.create()), 201, _NO_STORE
    )


@backups_router.post("/restore", response_model=BackupDocument, responses=describe_error_responses(404, 409))
def restore(context: RequestContextDep, params: Annotated[RestoreParams, parse_query(RestoreParams)]) -> Response:
    """Have a backup answer from now on; what has changed since is taken up from the repository at once."""
    wiki = context.open_wiki(Scope.ADMIN)
    restored = wiki.handle.restore(params.at)
    wiki.notify_changed()
    return make_json_response(build_backup_document(restored), headers=_NO_STORE)


# Push webhooks of git hosts: a signed word that a repository has changed. The answer to a wiki that is not there, to
# one that takes no webhooks and to a wrong signature is the same, and takes the same time.


webhook_router = APIRouter(prefix="/api/v1", tags=["index"])

_UNUSABLE_SECRET = secrets.token_hex(16)
_HEX_SIGNATURE_HEADERS = ("x-gitea-signature", "x-forgejo-signature", "x-gogs-signature")
_WEBHOOK_OPENAPI = {"security": [], "requestBody": {"content": {"application/json": {"schema": {}}}}}


@webhook_router.post(
    "/webhook",
    status_code=202,
    response_model=ChangeAcceptedDocument,
    responses=describe_error_responses(413),
    openapi_extra=_WEBHOOK_OPENAPI,
)
async def webhook(
    request: Request, context: RequestContextDep, _: Annotated[NoParams, parse_query(NoParams)]
) -> Response:
    """Take a push webhook of GitHub, Gitea, Forgejo or GitLab, signed with the wiki's setting webhook_secret."""
    claimed = await run_in_threadpool(context.identify_unverified)
    secret = claimed.settings.get("webhook_secret", "") if claimed else ""
    # Signed block by block: what somebody sends without a key is never held as a whole.
    right = hmac.new((secret or _UNUSABLE_SECRET).encode(), digestmod=sha256)
    async for block in request.stream():
        right.update(block)
    proved = is_signed(request, right.hexdigest(), secret or _UNUSABLE_SECRET) and bool(secret)
    if not await run_in_threadpool(context.notify_by_webhook, claimed, verified=proved):
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
