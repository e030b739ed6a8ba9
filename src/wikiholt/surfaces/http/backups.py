"""A wiki's backups: made, listed, restored. All of it takes an admin's key."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.model import Scope
from wikiholt.surfaces.documents import ErrorDocument
from wikiholt.surfaces.documents.backups import BackupDocument, build_backup_document
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.parameters import NoParams, Until
from wikiholt.surfaces.http.problems import get_public_message
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import RequestContextDep

backups_router = APIRouter(prefix="/api/v1", tags=["backups"])

NoQuery = Annotated[NoParams, parse_query(NoParams)]
_NO_STORE = {"Cache-Control": "no-store"}


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
    wiki = context.open_wiki(Scope.ADMIN)
    shown = [build_backup_document(backup) for backup in wiki.handle.backups.list()]
    error = wiki.get_sync_state().backup_error
    document: BackupsDocument = {"backups": shown, "total": len(shown), "error": None}
    if error is not None:
        message, hint = get_public_message(error)
        document["error"] = {"code": error.code, "message": message, "hint": hint}
    return make_json_response(document, headers=_NO_STORE)


@backups_router.post("/backup", status_code=201, response_model=BackupDocument, responses=describe_error_responses(409))
def back_up(context: RequestContextDep, _: NoQuery) -> Response:
    """Back the index up as it is now; it goes on answering, and being written, meanwhile."""
    return make_json_response(build_backup_document(context.open_wiki(Scope.ADMIN).handle.backups.create()), 201, _NO_STORE)


@backups_router.post("/restore", response_model=BackupDocument, responses=describe_error_responses(404, 409))
def restore(context: RequestContextDep, params: Annotated[RestoreParams, parse_query(RestoreParams)]) -> Response:
    """Have a backup answer from now on; what has changed since is taken up from the repository at once."""
    wiki = context.open_wiki(Scope.ADMIN)
    restored = wiki.handle.restore(params.at)
    wiki.notify_changed()
    return make_json_response(build_backup_document(restored), headers=_NO_STORE)
