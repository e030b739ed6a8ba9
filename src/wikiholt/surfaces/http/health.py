"""Whether the service lives, and whether it can serve."""

import logging
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt import __version__
from wikiholt.errors import WikiholtError
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.parameters import Nothing
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import Who
from wikiholt.wiring import Farm

_LOG = logging.getLogger(__name__)

router = APIRouter()

_OPEN: dict[str, Any] = {"openapi_extra": {"security": []}, "responses": {422: declared()[422]}, "tags": ["service"]}
_NO_STORE = {"Cache-Control": "no-store"}


class HealthDocument(TypedDict):
    """The process answers."""

    status: Literal["ok"]
    version: str


class PartDocument(TypedDict):
    """One part the service stands on; `code` says what kind of error it has."""

    ready: bool
    code: str | None


class IndexesDocument(TypedDict):
    """How many wikis' indexes proved broken: being mended, or not to be mended so far. Others answer all the same."""

    healing: int
    broken: int


class ReadyDocument(TypedDict):
    """Whether requests can be served, and which part cannot if not."""

    status: Literal["ready", "not ready"]
    registry: PartDocument
    model: PartDocument
    indexes: IndexesDocument


# In the event loop, not in a thread: they answer even when every thread is at work.
@router.get("/api/v1/health", response_model=HealthDocument, **_OPEN)
@router.get("/healthz", response_model=HealthDocument, **_OPEN)
async def healthz(_: Annotated[Nothing, taken(Nothing)]) -> Response:
    """Say that the process is there."""
    return json_response({"status": "ok", "version": __version__}, headers=_NO_STORE)


@router.get(
    "/readyz",
    tags=["service"],
    response_model=ReadyDocument,
    openapi_extra=_OPEN["openapi_extra"],
    responses={
        503: {"model": ReadyDocument, "description": "A part is not ready."},
        422: declared()[422],
        429: declared()[429],
    },
)
def readyz(request: Request, who: Who, _: Annotated[Nothing, taken(Nothing)]) -> Response:
    """Say whether the registry can be read and the model be loaded, and how many indexes are being mended."""
    who.counted()  # a model that cannot be loaded is tried again each time
    farm: Farm = request.app.state.farm
    parts = {
        "registry": _part(farm.service.registry.only),
        "model": _part(farm.service.workshop.embedder),
    }
    ready = all(part["ready"] for part in parts.values())
    now = farm.keeper.counters()
    indexes = {"healing": now.healing, "broken": now.broken}
    document = {"status": "ready" if ready else "not ready", **parts, "indexes": indexes}
    return json_response(document, 200 if ready else 503, _NO_STORE)


def _part(tried: Callable[[], object]) -> PartDocument:
    try:
        tried()
    except WikiholtError as error:
        _LOG.warning("not ready (%s): %s", error.code, error.message)
        return {"ready": False, "code": error.code}
    return {"ready": True, "code": None}
