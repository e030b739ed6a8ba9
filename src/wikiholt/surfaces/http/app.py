"""The service as an ASGI application."""

import importlib.util
from collections.abc import Sequence
from types import ModuleType

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from wikiholt import __version__
from wikiholt.errors import WikiholtError
from wikiholt.surfaces.http import (
    attachments,
    backups,
    failures,
    health,
    indexing,
    keys,
    links,
    metrics,
    pages,
    reference,
    report,
    search,
    webhook,
    wikis,
    writing,
)
from wikiholt.surfaces.http.counting import QueryLogCollector, SchedulerCollector, VectorEngineCollector, ServiceMetrics, DatabaseCollector
from wikiholt.surfaces.http.edge import RequestMiddleware, RequestLimits
from wikiholt.surfaces.http.guests import HostContext
from wikiholt.surfaces.http.visits import RequestContext
from wikiholt.surfaces.web.routes import add_pages
from wikiholt.wiring import Application

_DESCRIPTION = "Search for wikis that live in git: by meaning and by word. Below /w/SLUG the same addresses are one wiki's."
_EXPOSED_HEADERS = ("ETag", "Location", "RateLimit", "RateLimit-Policy", "Retry-After")

_MCP_HEADERS = ("Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id")

_WIKI_ROUTES = (search, report, attachments, pages, writing, links, indexing, backups, keys)
"""Routes of one page's attachments, history and rename come before the page itself, whose path may hold anything."""
_SERVICE_ROUTES = (webhook, wikis, metrics)


def create_app(application: Application) -> FastAPI:
    """The application of a farm; who makes the farm starts and stops its keeper."""
    app = _create_base_app(application, RequestContext, "/openapi.json")
    _add_routes(app, (*_WIKI_ROUTES, *_SERVICE_ROUTES, health))
    app.add_route("/docs", reference.handle_docs, include_in_schema=False)
    add_pages(app, application)
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
    """The API of single wikis for a host that calls it in process; a request must come with its Admission."""
    app = _create_base_app(application, HostContext, "/api/v1/openapi.json")
    _add_routes(app, _WIKI_ROUTES)
    app.router.routes.extend(route for route in health.router.routes if getattr(route, "path", "") == "/api/v1/health")
    _add_mcp(app, application, prefix="/api/v1")
    _add_middleware(app, application, allow_cross_origin=False)
    return app


def _add_mcp(app: FastAPI, application: Application, prefix: str = "") -> None:
    if importlib.util.find_spec("mcp") is not None:
        from wikiholt.surfaces.mcp.mounting import add_mcp  # noqa: PLC0415 - it is an extra

        add_mcp(app, application, prefix)


def _create_base_app(application: Application, context_class: type[RequestContext], openapi_path: str) -> FastAPI:
    app = FastAPI(
        title="Wikiholt",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.farm = application
    app.state.visitor = context_class
    app.state.reference = openapi_path
    app.add_route(openapi_path, reference.handle_openapi, include_in_schema=False)
    app.state.metrics = ServiceMetrics()
    app.state.metrics.registry.register(SchedulerCollector(application.scheduler.get_counters))
    if application.service.components.query_log_writer is not None:
        app.state.metrics.registry.register(QueryLogCollector(application.service.components.query_log_writer))
    if application.service.components.vector_engine is not None:
        app.state.metrics.registry.register(VectorEngineCollector(application.service.components.vector_engine))
    if application.service.components.databases is not None:
        app.state.metrics.registry.register(DatabaseCollector(application.service.components.databases))
    app.add_exception_handler(WikiholtError, failures.on_error)
    app.add_exception_handler(RequestValidationError, failures.on_invalid)
    app.add_exception_handler(HTTPException, failures.on_http_exception)
    return app


def _add_middleware(app: FastAPI, application: Application, *, allow_cross_origin: bool) -> None:
    app.add_middleware(
        RequestMiddleware, limits=RequestLimits(application.settings.limit_body_bytes, allow_cross_origin=allow_cross_origin), metrics=app.state.metrics
    )


def _add_routes(app: FastAPI, modules: Sequence[ModuleType]) -> None:
    """Add the routes in one flat list: an answer of 405 and the figures go by it."""
    for part in modules:
        app.router.routes.extend(part.router.routes)
