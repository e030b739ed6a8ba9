"""Routes about the service itself: metrics, liveness and readiness."""

import logging
from collections.abc import Callable
from typing import Any, Literal

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from wikiholt import __version__
from wikiholt.app.bootstrap import Application
from wikiholt.domain.wiki import Person, Scope
from wikiholt.errors import WikiholtError
from wikiholt.git.remote_url import is_remote
from wikiholt.interfaces.http.metrics import ServiceMetrics
from wikiholt.interfaces.http.problem_details import describe_error_responses
from wikiholt.interfaces.http.query_params import NoQuery
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import make_json_response
from wikiholt.interfaces.http.sign_in import SignInMethod

_log = logging.getLogger(__name__)

metrics_router = APIRouter(tags=["service"])
router = APIRouter()

_PUBLIC_ROUTE: dict[str, Any] = {
    "openapi_extra": {"security": []},
    "responses": {422: describe_error_responses()[422]},
    "tags": ["service"],
}
_ME_ROUTE = {**_PUBLIC_ROUTE, "responses": describe_error_responses()}
_NO_STORE = {"Cache-Control": "no-store"}


class LivenessDocument(TypedDict):
    """The process answers."""

    status: Literal["ok"]
    version: str


class ComponentDocument(TypedDict):
    """State of a component that the service needs; `code` is its error code."""

    ready: bool
    code: str | None


class ClientDocument(TypedDict):
    """Who sends the request: a key, a person or nobody.

    `wiki` is the wiki of the request, if the client may read it, and `scope` the scope there. A mirror of a remote
    repository is not `writable`. `method` says how the client is authenticated.
    """

    kind: Literal["anonymous", "key", "person"]
    name: str
    method: SignInMethod
    wiki: str | None
    scope: Scope | None
    writable: bool
    operator: bool
    key: str | None
    groups: list[str]


class DamagedIndexesDocument(TypedDict):
    """Numbers of wikis with a damaged index: being repaired, or not repaired so far. Other wikis are not affected."""

    repairing: int
    broken: int


class ReadinessDocument(TypedDict):
    """Whether the service can answer requests, and which component is not ready."""

    status: Literal["ready", "not ready"]
    registry: ComponentDocument
    model: ComponentDocument
    indexes: DamagedIndexesDocument


@metrics_router.get(
    "/metrics",
    operation_id="metrics_metrics_get",
    response_class=Response,
    responses=describe_error_responses()
    | {200: {"description": "Metrics in the Prometheus text format.", "content": {"text/plain": {}}}},
)
def get_metrics(request: Request, context: RequestContextDep, _: NoQuery) -> Response:
    """Return the metrics of the service; requires an operator key."""
    context.require_metrics_access()
    metrics: ServiceMetrics = request.app.state.metrics
    return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)


# A coroutine, so that it runs in the event loop and answers even if all threads are busy.
@router.get(
    "/api/v1/health", operation_id="healthz_api_v1_health_get", response_model=LivenessDocument, **_PUBLIC_ROUTE
)
@router.get("/healthz", operation_id="healthz_healthz_get", response_model=LivenessDocument, **_PUBLIC_ROUTE)
async def check_health(_: NoQuery) -> Response:
    """Confirm that the process is running."""
    return make_json_response({"status": "ok", "version": __version__}, headers=_NO_STORE)


@router.get(
    "/readyz",
    operation_id="readyz_readyz_get",
    tags=["service"],
    response_model=ReadinessDocument,
    openapi_extra=_PUBLIC_ROUTE["openapi_extra"],
    responses={
        503: {"model": ReadinessDocument, "description": "A component is not ready."},
        422: describe_error_responses()[422],
        429: describe_error_responses()[429],
    },
)
def check_ready(request: Request, context: RequestContextDep, _: NoQuery) -> Response:
    """Check that the registry can be read and the model loaded, and count damaged indexes."""
    context.count_request()  # each request tries again to load a model that failed to load
    application: Application = request.app.state.application
    components = {
        "registry": _check_component(application.service.registry.get_only),
        "model": _check_component(application.service.load_embedder),
    }
    ready = all(component["ready"] for component in components.values())
    counters = application.get_counters()
    indexes = {"repairing": counters.repairing, "broken": counters.broken}
    document = {"status": "ready" if ready else "not ready", **components, "indexes": indexes}
    return make_json_response(document, 200 if ready else 503, _NO_STORE)


@router.get("/api/v1/me", response_model=ClientDocument, **_ME_ROUTE)
def describe_client(context: RequestContextDep, _: NoQuery) -> Response:
    """Return who the client is."""
    description = context.describe_client()
    client, wiki, scope = description.client, description.wiki, description.scope
    can_write = scope is not None and scope.allows(Scope.WRITE)
    person = client if isinstance(client, Person) else None
    document = {
        "kind": "anonymous" if client is None else "person" if person else "key",
        "name": client.label if client else "",
        "method": description.method,
        "wiki": wiki.slug if wiki else None,
        "scope": scope,
        "writable": wiki is not None and can_write and not is_remote(wiki.source),
        "operator": description.is_operator,
        "key": None if client is None or person else client.id,
        "groups": list(person.groups) if person else [],
    }
    return make_json_response(document, headers=_NO_STORE)


def _check_component(check: Callable[[], object]) -> ComponentDocument:
    try:
        check()
    except WikiholtError as error:
        _log.warning("not ready (%s): %s", error.code, error.message)
        return {"ready": False, "code": error.code}
    return {"ready": True, "code": None}
