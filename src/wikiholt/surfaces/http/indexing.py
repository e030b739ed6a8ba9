"""How a wiki's index stands, building it anew, and waking its sync."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.errors import WikiholtError
from wikiholt.keeper import WikiActivity, ReindexJob, ReindexState
from wikiholt.model import Scope
from wikiholt.surfaces.documents import ErrorDocument, ProblemDocument, build_problem_document
from wikiholt.surfaces.documents.health import (
    ReindexEstimateDocument,
    IndexHealthDocument,
    build_estimate_document,
    build_health_document,
)
from wikiholt.surfaces.documents.moments import format_date
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.parameters import Flag, NoParams
from wikiholt.surfaces.http.problems import get_public_message
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import WikiSession, RequestContextDep

router = APIRouter(prefix="/api/v1", tags=["index"])

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
    wiki = context.open_wiki(Scope.READ)
    return make_json_response(_build_index_document(wiki))


@router.post(
    "/reindex",
    status_code=202,
    response_model=ReindexStartedDocument,
    responses=describe_error_responses(409) | {200: {"model": ReindexEstimateDocument, "description": "What it would take (dry_run)."}},
)
def reindex(request: Request, context: RequestContextDep, params: Annotated[ReindexParams, parse_query(ReindexParams)]) -> Response:
    """Build the index anew beside the old one, which goes on answering; or say what that would take."""
    wiki = context.open_wiki(Scope.ADMIN)
    if params.dry_run:
        return make_json_response(build_estimate_document(wiki.handle.estimate_reindex(_ESTIMATE_TIME_LIMIT_S)), headers={"Cache-Control": "no-store"})
    wiki.start_reindex()
    location = f"{request.scope.get('root_path', '')}/api/v1/reindex/status"
    return make_json_response({"status": "started"}, 202, {"Location": location})


@router.get("/reindex/status", response_model=ReindexJobDocument, responses=describe_error_responses())
def reindex_status(context: RequestContextDep, _: NoQuery) -> Response:
    """Say how the last reindexing stands; it outlives a restart of the service."""
    return make_json_response(_build_job_document(context.open_wiki(Scope.READ).get_reindex_job()), headers={"Cache-Control": "no-store"})


@router.post("/wake", status_code=202, response_model=ChangeAcceptedDocument, responses=describe_error_responses())
def wake(context: RequestContextDep, _: NoQuery) -> Response:
    """Have the repository looked at now."""
    context.open_wiki(Scope.WRITE).notify_changed()
    return make_json_response({"status": "woken"}, 202)


def _build_index_document(wiki: WikiSession) -> IndexDocument:
    found, standing = wiki.handle.get_status(), wiki.get_sync_state()
    state = found.state
    error = found.error or standing.error
    activity = wiki.get_activity()
    return {
        "slug": wiki.wiki.slug,
        "pages": state.pages if state else 0,
        "chunks": state.chunks if state else 0,
        "problems": [build_problem_document(problem) for problem in found.problems],
        "indexed_revision": state.revision if state else None,
        "head_revision": found.head,
        "stale": found.stale,
        "synced_at": format_date(state.synced_at) if state else None,
        "generation": state.generation if state else None,
        "version": state.version if state else None,
        "model": state.recipe.fingerprint if state else None,
        "disk_bytes": found.disk_bytes,
        "error": _build_public_error_document(error) if error else None,
        "activity": _build_activity_document(activity) if activity else None,
        "waiting": standing.waiting,
        "missing": standing.missing,
        "health": build_health_document(found.health),
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
