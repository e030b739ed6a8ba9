"""The HTTP service as an ASGI application, and which error becomes which problem response."""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Environment

from wikiholt import __version__
from wikiholt.api.bootstrap import Application
from wikiholt.api.operations.table import OPERATIONS_OF_SERVICE, OPERATIONS_OF_WIKI
from wikiholt.api.public_messages import get_public_message
from wikiholt.domain.wiki import Scope
from wikiholt.errors import AccessDenied, InputTooLarge, WikiholtError
from wikiholt.interfaces.http import bulk_write, service_routes, webhook
from wikiholt.interfaces.http.metrics import ServiceMetrics, make_process_collectors, make_scheduler_collector
from wikiholt.interfaces.http.middleware import RequestMiddleware
from wikiholt.interfaces.http.operation_routes import make_router
from wikiholt.interfaces.http.problem_details import (
    FieldError,
    make_error_response,
    make_internal_error_response,
    make_invalid_response,
    make_problem_response,
)
from wikiholt.interfaces.http.request_context import HostContext, RequestContext, get_request_context

_DESCRIPTION = (
    "Search for wikis that live in git: by meaning and by word. Below /w/SLUG the same paths address one wiki."
)
_EXPOSED_HEADERS = ("ETag", "Location", "RateLimit", "RateLimit-Policy", "Retry-After")

_ERROR_HEADERS = ("WWW-Authenticate", "Retry-After", "RateLimit")
"""Headers of an error that its page has too."""

_MCP_HEADERS = ("Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id")

_WIKI_ROUTERS = (make_router("/api/v1", OPERATIONS_OF_WIKI), bulk_write.router)
_SERVICE_ROUTERS = (webhook.router, make_router("/api/v1", OPERATIONS_OF_SERVICE), service_routes.metrics_router)


def create_app(application: Application, metrics: ServiceMetrics | None = None) -> FastAPI:
    """Create the HTTP service. The caller starts and stops the scheduler of the application."""
    from wikiholt.interfaces.web.web_routes import add_pages  # noqa: PLC0415 - a host application has its own pages

    app = _create_base_app(application, RequestContext, "/openapi.json", metrics)
    _add_routes(app, (*_WIKI_ROUTERS, *_SERVICE_ROUTERS, service_routes.router))
    app.add_route("/docs", service_routes.handle_docs, include_in_schema=False)
    add_pages(app, application)
    app.state.has_pages = True
    _add_mcp(app, application)
    origins = application.settings.serve_cors_origins
    _add_middleware(app, application, allow_cross_origin=bool(origins))
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-Match", "If-None-Match", *_MCP_HEADERS],
            expose_headers=list(_EXPOSED_HEADERS),
        )
    return app


def create_host_app(application: Application) -> FastAPI:
    """Create the API of single wikis for a host application; each request must carry a HostGrant."""
    app = _create_base_app(application, HostContext, "/api/v1/openapi.json")
    _add_routes(app, _WIKI_ROUTERS)
    app.router.routes.extend(
        route for route in service_routes.router.routes if getattr(route, "path", "") == "/api/v1/health"
    )
    _add_mcp(app, application, prefix="/api/v1")
    _add_middleware(app, application, allow_cross_origin=False)
    return app


def _add_mcp(app: FastAPI, application: Application, prefix: str = "") -> None:
    """Add the MCP endpoint if its optional dependency is installed; without a prefix also OAuth, if configured."""
    settings = application.settings
    if importlib.util.find_spec("mcp") is None:
        return
    verifiers: Sequence[Any] = ()
    if (settings.oauth_issuers or settings.mcp_oauth) and not prefix:
        from wikiholt.interfaces.mcp.mcp_routes import add_oauth  # noqa: PLC0415 - an optional dependency

        verifiers = add_oauth(app, application)

    def make_endpoint() -> ASGIApp:
        from wikiholt.interfaces.mcp.mcp_routes import McpEndpoint  # noqa: PLC0415 - see _LazyEndpoint

        return McpEndpoint(settings, verifiers)

    endpoint = _LazyEndpoint(make_endpoint)
    endpoint.route = Route(f"{prefix}/mcp", endpoint, methods=["POST"])
    app.router.routes.append(endpoint.route)


class _LazyEndpoint:
    """An ASGI endpoint that is made at its first request: what MCP imports takes 20 MB and half a second."""

    def __init__(self, make: Callable[[], ASGIApp]) -> None:
        self._make = make
        self._endpoint: ASGIApp | None = None
        self.route: Route | None = None

    async def __call__(self, scope: Environment, receive: Receive, send: Send) -> None:
        scope["route"] = self.route  # for the request metrics; FastAPI sets it only for its own routes
        if self._endpoint is None:
            self._endpoint = await run_in_threadpool(self._make)
        await self._endpoint(scope, receive, send)


def _create_base_app(
    application: Application,
    context_class: type[RequestContext],
    openapi_path: str,
    metrics: ServiceMetrics | None = None,
) -> FastAPI:
    app = FastAPI(
        title="Wikiholt",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.application = application
    app.state.has_pages = False
    app.state.context_class = context_class
    app.state.openapi_path = openapi_path
    app.add_route(openapi_path, service_routes.handle_openapi, include_in_schema=False)
    app.state.metrics = metrics or ServiceMetrics()
    app.state.metrics.registry.register(make_scheduler_collector(application.get_counters))
    for collector in make_process_collectors(application.service):
        app.state.metrics.add_process_collector(collector)
    app.add_exception_handler(WikiholtError, on_error)
    app.add_exception_handler(RequestValidationError, on_invalid)
    app.add_exception_handler(HTTPException, on_http_exception)
    return app


def _add_middleware(app: FastAPI, application: Application, *, allow_cross_origin: bool) -> None:
    app.add_middleware(
        RequestMiddleware,
        settings=application.settings,
        allow_cross_origin=allow_cross_origin,
        metrics=app.state.metrics,
        make_failure_response=_make_failure_response,
    )


def _make_failure_response(request: Request) -> Response:
    """The response to an unexpected exception, without details."""
    hint = "Try again. If that does not help, ask the operator: the service log has the reason."
    return _to_page(request, make_internal_error_response(), "This page could not be shown.", hint)


def _add_routes(app: FastAPI, routers: Sequence[APIRouter]) -> None:
    """Add the routes to one flat list, which 405 responses and metrics use."""
    for router in routers:
        app.router.routes.extend(router.routes)


async def on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, WikiholtError)
    return await run_in_threadpool(_to_page, request, make_problem_response(error), *get_public_message(error))


def _to_page(request: Request, response: Response, message: str, hint: str) -> Response:
    """An error response, as a page with the same status and headers if a browser asks for one."""
    if not request.app.state.has_pages:
        return response
    from wikiholt.interfaces.web.page_frame import render_error_page, wants_html  # noqa: PLC0415 - see create_app

    if not wants_html(request):
        return response
    headers = {name: response.headers[name] for name in _ERROR_HEADERS if name in response.headers}
    return render_error_page(request, response.status_code, message, hint, headers)


async def on_invalid(request: Request, error: Exception) -> Response:
    """Respond to invalid parameters or an invalid body with a list of all wrong fields.

    A client without access to the wiki gets the access error instead.
    """
    assert isinstance(error, RequestValidationError)
    access_error = await run_in_threadpool(_find_access_error, request)
    if access_error is not None:
        return make_problem_response(access_error)
    faults: list[FieldError] = []
    for fault in error.errors():
        where, *names = fault["loc"]
        message = "unknown field" if fault["type"] == "extra_forbidden" else str(fault["msg"])
        faults.append({"field": ".".join(map(str, names)), "where": str(where), "message": message})
    return make_invalid_response(faults, request.app.state.openapi_path)


def _find_access_error(request: Request) -> AccessDenied | None:
    """The access error of the request, if any; it takes precedence over validation errors."""
    if (getattr(request.scope.get("route"), "openapi_extra", None) or {}).get("security") == []:
        return None
    try:
        get_request_context(request).open_wiki(Scope.READ)
    except AccessDenied as error:
        return error
    except WikiholtError:
        return None
    return None


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Respond to errors that the framework raises: unknown path, wrong method, body too large, invalid JSON."""
    assert isinstance(error, HTTPException)
    if error.status_code == InputTooLarge.status:
        return make_problem_response(
            InputTooLarge(str(error.detail), hint="Send less, or raise the setting limit.body_bytes.")
        )
    if error.status_code == 404:
        hint = f"{request.app.state.openapi_path} lists all paths."
        response = make_error_response(404, "not-found", "Unknown path.", hint)
        message, hint = "There is no page at this address.", "The link may be wrong or outdated."
        return await run_in_threadpool(_to_page, request, response, message, hint)
    if error.status_code == 405:
        allowed = ", ".join(sorted(find_allowed_methods(request)))
        return make_error_response(405, "method-not-allowed", f"This path allows {allowed}.", "", {"Allow": allowed})
    return make_invalid_response(
        [{"field": "", "where": "body", "message": "it is not JSON in UTF-8"}], request.app.state.openapi_path
    )


def find_allowed_methods(request: Request) -> set[str]:
    """The methods of all routes that match the path."""
    methods: set[str] = set()
    for route in request.app.routes:
        match, _ = route.matches(dict(request.scope))
        if match.value and getattr(route, "methods", None):
            methods |= route.methods
    return methods | ({"HEAD"} if "GET" in methods else set())
