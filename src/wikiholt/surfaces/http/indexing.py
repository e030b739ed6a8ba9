"""How a wiki's index stands, building it anew, and waking its sync."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.errors import WikiholtError
from wikiholt.keeper import Activity, Job, JobState
from wikiholt.model import Scope
from wikiholt.surfaces.documents import ErrorDocument, ProblemDocument, problem_document
from wikiholt.surfaces.documents.health import (
    ForecastDocument,
    HealthDocument,
    forecast_document,
    health_document,
)
from wikiholt.surfaces.documents.moments import moment
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.parameters import Flag, Nothing
from wikiholt.surfaces.http.problems import told
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import OpenWiki, Who

router = APIRouter(prefix="/api/v1", tags=["index"])

_STATES: dict[JobState, Literal["idle", "in_progress", "complete", "error"]] = {
    JobState.NONE: "idle",
    JobState.QUEUED: "in_progress",
    JobState.RUNNING: "in_progress",
    JobState.COMPLETE: "complete",
    JobState.FAILED: "error",
}
_FAILED = "The reindexing failed; the operator finds the reason in the service's log."
_READING = 15.0
"""Seconds a dry run reads pages; of a wiki that takes longer it gives an estimate."""
NoQuery = Annotated[Nothing, taken(Nothing)]


class Reindex(Nothing):
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
    health: HealthDocument


class JobDocument(TypedDict):
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


class StartedDocument(TypedDict):
    """It has been started."""

    status: Literal["started"]


class WokenDocument(TypedDict):
    """The wiki will be looked at before those that are only due."""

    status: Literal["woken"]


@router.get("/status", response_model=IndexDocument, responses=declared())
def status(who: Who, _: NoQuery) -> Response:
    """Say what is indexed, how fresh it is, which pages have problems, and what is being done."""
    wiki = who.wiki(Scope.READ)
    return json_response(_index_document(wiki))


@router.post(
    "/reindex",
    status_code=202,
    response_model=StartedDocument,
    responses=declared(409) | {200: {"model": ForecastDocument, "description": "What it would take (dry_run)."}},
)
def reindex(request: Request, who: Who, asked: Annotated[Reindex, taken(Reindex)]) -> Response:
    """Build the index anew beside the old one, which goes on answering; or say what that would take."""
    wiki = who.wiki(Scope.ADMIN)
    if asked.dry_run:
        return json_response(forecast_document(wiki.handle.forecast(_READING)), headers={"Cache-Control": "no-store"})
    wiki.reindex()
    location = f"{request.scope.get('root_path', '')}/api/v1/reindex/status"
    return json_response({"status": "started"}, 202, {"Location": location})


@router.get("/reindex/status", response_model=JobDocument, responses=declared())
def reindex_status(who: Who, _: NoQuery) -> Response:
    """Say how the last reindexing stands; it outlives a restart of the service."""
    return json_response(_job_document(who.wiki(Scope.READ).job()), headers={"Cache-Control": "no-store"})


@router.post("/wake", status_code=202, response_model=WokenDocument, responses=declared())
def wake(who: Who, _: NoQuery) -> Response:
    """Have the repository looked at now."""
    who.wiki(Scope.WRITE).wake()
    return json_response({"status": "woken"}, 202)


def _index_document(wiki: OpenWiki) -> IndexDocument:
    found, standing = wiki.handle.status(), wiki.standing()
    state = found.state
    error = found.error or standing.error
    activity = wiki.activity()
    return {
        "slug": wiki.wiki.slug,
        "pages": state.pages if state else 0,
        "chunks": state.chunks if state else 0,
        "problems": [problem_document(problem) for problem in found.problems],
        "indexed_revision": state.revision if state else None,
        "head_revision": found.head,
        "stale": found.stale,
        "synced_at": moment(state.synced_at) if state else None,
        "generation": state.generation if state else None,
        "version": state.version if state else None,
        "model": state.recipe.fingerprint if state else None,
        "disk_bytes": found.disk_bytes,
        "error": _error_document(error) if error else None,
        "activity": _activity_document(activity) if activity else None,
        "waiting": standing.waiting,
        "missing": standing.missing,
        "health": health_document(found.health),
    }


def _error_document(error: WikiholtError) -> ErrorDocument:
    message, hint = told(error)
    return {"code": error.code, "message": message, "hint": hint}


def _activity_document(activity: Activity) -> ActivityDocument:
    return {
        "kind": activity.kind,
        "since": moment(activity.since),
        "pages_done": activity.pages_done,
        "pages_total": activity.pages_total,
        "chunks_embedded": activity.chunks_embedded,
    }


def _job_document(job: Job) -> JobDocument:
    failed = job.state is JobState.FAILED
    return {
        "status": _STATES[job.state],
        "started_at": moment(job.started_at),
        "completed_at": moment(job.finished_at),
        "pages_indexed": job.pages_done,
        "pages_total": job.pages_total,
        "chunks_created": job.chunks_embedded,
        "problems": job.problems,
        "revision": job.revision,
        "resumed": job.resumed,
        "error_message": _FAILED if failed else None,
        "error_code": job.error_code if failed else None,
    }
