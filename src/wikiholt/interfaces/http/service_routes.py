"""Routes about the service itself: metrics, liveness, readiness, the client, and the OpenAPI document with its page."""

import base64
import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from html import escape
from typing import Any, Literal

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from typing_extensions import TypedDict

from wikiholt import __version__
from wikiholt.api.bootstrap import Application
from wikiholt.domain.wiki import Person, Scope
from wikiholt.errors import WikiholtError
from wikiholt.git.remote_url import is_remote
from wikiholt.interfaces.http.metrics import ServiceMetrics
from wikiholt.interfaces.http.operation_routes import NoQuery, describe_body, describe_parameters
from wikiholt.interfaces.http.problem_details import PROBLEM_SCHEMA, ProblemDetails, describe_error_responses
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import NO_STORE, make_json_response
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
    """The metrics of the service; requires an operator key."""
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
    return make_json_response({"status": "ok", "version": __version__}, headers=NO_STORE)


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
    return make_json_response(document, 200 if ready else 503, NO_STORE)


@router.get("/api/v1/me", response_model=ClientDocument, **_ME_ROUTE)
def describe_client(context: RequestContextDep, _: NoQuery) -> Response:
    """Say who the client is."""
    client, method, grant, is_operator = context.describe_client()
    wiki, scope = (grant.wiki, grant.scope) if grant else (None, None)
    can_write = scope is not None and scope.allows(Scope.WRITE)
    person = client if isinstance(client, Person) else None
    document = {
        "kind": "anonymous" if client is None else "person" if person else "key",
        "name": client.label if client else "",
        "method": method,
        "wiki": wiki.slug if wiki else None,
        "scope": scope,
        "writable": wiki is not None and can_write and not is_remote(wiki.source),
        "operator": is_operator,
        "key": None if client is None or person else client.id,
        "groups": list(person.groups) if person else [],
    }
    return make_json_response(document, headers=NO_STORE)


def _check_component(check: Callable[[], object]) -> ComponentDocument:
    try:
        check()
    except WikiholtError as error:
        _log.warning("not ready (%s): %s", error.code, error.message)
        return {"ready": False, "code": error.code}
    return {"ready": True, "code": None}


# The OpenAPI document, and a page that shows it without scripts or external files


_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h2 { margin-top: 2.5rem; } h3 { margin-bottom: 0; }
code { font-family: ui-monospace, monospace; } table { border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: .2rem 1rem .2rem 0; }
"""
_CSP = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-{digest}'"


def build_openapi(app: FastAPI) -> dict[str, Any]:
    """Build the OpenAPI document, once per application."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        components = document.setdefault("components", {})
        problem = TypeAdapter(ProblemDetails).json_schema(ref_template="#/components/schemas/{model}")
        components["schemas"] |= problem.pop("$defs", {}) | {PROBLEM_SCHEMA: problem}
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "A Wikiholt key."}}
        document["security"] = [{"key": []}]
        for route in app.routes:
            if isinstance(route, APIRoute):
                for method in route.methods or ():
                    operation = document["paths"][route.path_format][method.lower()]
                    operation["parameters"] = [
                        *operation.get("parameters", ()),
                        *describe_parameters(route),
                    ]
                    if body := describe_body(route, components["schemas"]):
                        operation["requestBody"] = body
        app.openapi_schema = document
    return app.openapi_schema


def handle_openapi(request: Request) -> Response:
    """The document, with the base path of the request as its server URL."""
    base = request.scope.get("root_path", "") or "/"
    return make_json_response(
        build_openapi(request.app) | {"servers": [{"url": base}]}, headers={"Cache-Control": "no-cache"}
    )


def handle_docs(request: Request) -> Response:
    """An HTML page with all operations."""
    digest = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    page = "".join(_render_page(build_openapi(request.app)))
    return HTMLResponse(page, headers={"Content-Security-Policy": _CSP.format(digest=digest)})


def _render_page(api: Mapping[str, Any]) -> Iterator[str]:
    title = escape(f"{api['info']['title']} {api['info']['version']}")
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head><body>'
    yield f"<h1>{title}</h1><p>{escape(api['info'].get('description', ''))}</p>"
    yield '<p>For programs: <a href="openapi.json">openapi.json</a></p>'
    tag = None
    for path, operations in api["paths"].items():
        for method, operation in operations.items():
            if operation["tags"][0] != tag:
                tag = operation["tags"][0]
                yield f"<h2>{escape(tag.capitalize())}</h2>"
            yield from _render_operation(path, method, operation)
    yield "</body></html>"


def _render_operation(path: str, method: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h3><code>{method.upper()} {escape(path)}</code></h3><p>{escape(operation.get('description', ''))}</p>"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "<table><tr><th>Parameter<th>In<th>Description</tr>"
        for parameter in parameters:
            required = " (required)" if parameter.get("required") else ""
            meaning = escape(parameter.get("description", ""))
            yield f"<tr><td><code>{escape(parameter['name'])}</code>{required}<td>{parameter['in']}<td>{meaning}</tr>"
        yield "</table>"
    yield f"<p>Responses: {', '.join(sorted(operation['responses']))}</p>"
