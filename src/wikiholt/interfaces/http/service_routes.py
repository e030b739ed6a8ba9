"""Figures for Prometheus."""

import logging
from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt import __version__
from wikiholt.app.bootstrap import Application
from wikiholt.errors import WikiholtError
from wikiholt.interfaces.http.metrics import ServiceMetrics
from wikiholt.interfaces.http.problem_details import describe_error_responses
from wikiholt.interfaces.http.query_params import NoParams, parse_query
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import make_json_response

metrics_router = APIRouter(tags=["service"])


@metrics_router.get(
    "/metrics",
    response_class=Response,
    responses=describe_error_responses()
    | {200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}},
)
def metrics(request: Request, context: RequestContextDep, _: Annotated[NoParams, parse_query(NoParams)]) -> Response:
    """Figures of the service, for an operator's key."""
    context.require_metrics_access()
    held: ServiceMetrics = request.app.state.metrics
    return Response(generate_latest(held.registry), media_type=CONTENT_TYPE_LATEST)


# Whether the service lives, and whether it can serve.


_log = logging.getLogger(__name__)

router = APIRouter()

_PUBLIC_ROUTE: dict[str, Any] = {
    "openapi_extra": {"security": []},
    "responses": {422: describe_error_responses()[422]},
    "tags": ["service"],
}
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
    farm: Application = request.app.state.application
    parts = {
        "registry": _check_component(farm.service.registry.get_only),
        "model": _check_component(farm.service.load_embedder),
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
