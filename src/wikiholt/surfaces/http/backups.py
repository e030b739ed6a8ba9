"""A wiki's backups: made, listed, restored. All of it takes an admin's key."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt.model import Scope
from wikiholt.surfaces.documents import ErrorDocument
from wikiholt.surfaces.documents.backups import BackupDocument, backup_document
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.parameters import Nothing, Until
from wikiholt.surfaces.http.problems import told
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import Who

router = APIRouter(prefix="/api/v1", tags=["backups"])

NoQuery = Annotated[Nothing, taken(Nothing)]
_NO_STORE = {"Cache-Control": "no-store"}


class At(Nothing):
    """Which backup."""

    at: Until | None = Field(
        None, description="The newest not taken after this: a date (its end), a date with time, or 12h, 7d, 3w ago."
    )


class BackupsDocument(TypedDict):
    """A wiki's backups, newest first; `error` says why the last one by schedule could not be made."""

    backups: list[BackupDocument]
    total: int
    error: ErrorDocument | None


@router.get("/backups", response_model=BackupsDocument, responses=declared())
def list_backups(who: Who, _: NoQuery) -> Response:
    """List the wiki's backups."""
    wiki = who.wiki(Scope.ADMIN)
    shown = [backup_document(backup) for backup in wiki.handle.backups.list()]
    error = wiki.standing().backup_error
    document: BackupsDocument = {"backups": shown, "total": len(shown), "error": None}
    if error is not None:
        message, hint = told(error)
        document["error"] = {"code": error.code, "message": message, "hint": hint}
    return json_response(document, headers=_NO_STORE)


@router.post("/backup", status_code=201, response_model=BackupDocument, responses=declared(409))
def back_up(who: Who, _: NoQuery) -> Response:
    """Back the index up as it is now; it goes on answering, and being written, meanwhile."""
    return json_response(backup_document(who.wiki(Scope.ADMIN).handle.backups.take()), 201, _NO_STORE)


@router.post("/restore", response_model=BackupDocument, responses=declared(404, 409))
def restore(who: Who, query: Annotated[At, taken(At)]) -> Response:
    """Have a backup answer from now on; what has changed since is taken up from the repository at once."""
    wiki = who.wiki(Scope.ADMIN)
    restored = wiki.handle.restore(query.at)
    wiki.wake()
    return json_response(backup_document(restored), headers=_NO_STORE)
