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
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.parameters import NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import RequestContextDep
from wikiholt.wiring import Application

_log = logging.getLogger(__name__)

router = APIRouter()

_PUBLIC_ROUTE: dict[str, Any] = {"openapi_extra": {"security": []}, "responses": {422: describe_error_responses()[422]}, "tags": ["service"]}
_NO_STORE = {"Cache-Control": "no-store"}


class LivenessDocument(TypedDict):
    """The process answers."""

    status: Literal["ok"]
    version: str


class ComponentDocument(TypedDict):
    """One part the service stands on; `code` says what kind of error it has."""

    ready: bool
    code: str | None


class DamagedIndexesDocument(TypedDict):
    """How many wikis' indexes proved broken: being mended, or not to be mended so far. Others answer all the same."""

    healing: int
    broken: int


class ReadinessDocument(TypedDict):
    """Whether requests can be served, and which part cannot if not."""

    status: Literal["ready", "not ready"]
    registry: ComponentDocument
    model: ComponentDocument
    indexes: DamagedIndexesDocument


# In the event loop, not in a thread: they answer even when every thread is at work.
@router.get("/api/v1/health", response_model=LivenessDocument, **_PUBLIC_ROUTE)
@router.get("/healthz", response_model=LivenessDocument, **_PUBLIC_ROUTE)
async def healthz(_: Annotated[NoParams, parse_query(NoParams)]) -> Response:
    """Say that the process is there."""
    return make_json_response({"status": "ok", "version": __version__}, headers=_NO_STORE)


@router.get(
    "/readyz",
    tags=["service"],
    response_model=ReadinessDocument,
    openapi_extra=_PUBLIC_ROUTE["openapi_extra"],
    responses={
        503: {"model": ReadinessDocument, "description": "A part is not ready."},
        422: describe_error_responses()[422],
        429: describe_error_responses()[429],
    },
)
def readyz(request: Request, context: RequestContextDep, _: Annotated[NoParams, parse_query(NoParams)]) -> Response:
    """Say whether the registry can be read and the model be loaded, and how many indexes are being mended."""
    context.count_request()  # a model that cannot be loaded is tried again each time
    farm: Application = request.app.state.farm
    parts = {
        "registry": _check_component(farm.service.registry.get_only),
        "model": _check_component(farm.service.components.embedder),
    }
    ready = all(part["ready"] for part in parts.values())
    now = farm.scheduler.get_counters()
    indexes = {"healing": now.healing, "broken": now.broken}
    document = {"status": "ready" if ready else "not ready", **parts, "indexes": indexes}
    return make_json_response(document, 200 if ready else 503, _NO_STORE)


def _check_component(check: Callable[[], object]) -> ComponentDocument:
    try:
        check()
    except WikiholtError as error:
        _log.warning("not ready (%s): %s", error.code, error.message)
        return {"ready": False, "code": error.code}
    return {"ready": True, "code": None}
