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
from wikiholt.surfaces.http.counting import Asking, Keeping, Leaning, Metrics, Standing
from wikiholt.surfaces.http.edge import Edge, EdgeLimits
from wikiholt.surfaces.http.guests import Guest
from wikiholt.surfaces.http.visits import Visitor
from wikiholt.surfaces.web.routes import add_pages
from wikiholt.wiring import Farm

_ABOUT = "Search for wikis that live in git: by meaning and by word. Below /w/SLUG the same addresses are one wiki's."
_SHARED = ("ETag", "Location", "RateLimit", "RateLimit-Policy", "Retry-After")

_OF_AGENTS = ("Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name", "Mcp-Session-Id")

_OF_A_WIKI = (search, report, attachments, pages, writing, links, indexing, backups, keys)
"""Routes of one page's attachments, history and rename come before the page itself, whose path may hold anything."""
_OF_A_SERVICE = (webhook, wikis, metrics)


def create_app(farm: Farm) -> FastAPI:
    """The application of a farm; who makes the farm starts and stops its keeper."""
    app = _empty_app(farm, Visitor, "/openapi.json")
    _add_routes(app, (*_OF_A_WIKI, *_OF_A_SERVICE, health))
    app.add_route("/docs", reference.docs, include_in_schema=False)
    add_pages(app, farm)
    _add_mcp(app, farm)
    origins = farm.settings.serve_cors_origins
    _surround(app, farm, shared=bool(origins))
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-Match", "If-None-Match", *_OF_AGENTS],
            expose_headers=list(_SHARED),
        )
    return app


def create_guest_app(farm: Farm) -> FastAPI:
    """The API of single wikis for a host that calls it in process; a request must come with its Admission."""
    app = _empty_app(farm, Guest, "/api/v1/openapi.json")
    _add_routes(app, _OF_A_WIKI)
    app.router.routes.extend(route for route in health.router.routes if getattr(route, "path", "") == "/api/v1/health")
    _add_mcp(app, farm, below="/api/v1")
    _surround(app, farm, shared=False)
    return app


def _add_mcp(app: FastAPI, farm: Farm, below: str = "") -> None:
    if importlib.util.find_spec("mcp") is not None:
        from wikiholt.surfaces.mcp.mounting import add_mcp  # noqa: PLC0415 - it is an extra

        add_mcp(app, farm, below)


def _empty_app(farm: Farm, visitor: type[Visitor], document: str) -> FastAPI:
    app = FastAPI(
        title="Wikiholt",
        version=__version__,
        description=_ABOUT,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.farm = farm
    app.state.visitor = visitor
    app.state.reference = document
    app.add_route(document, reference.openapi, include_in_schema=False)
    app.state.metrics = Metrics()
    app.state.metrics.registry.register(Keeping(farm.keeper.counters))
    if farm.service.workshop.scribe is not None:
        app.state.metrics.registry.register(Asking(farm.service.workshop.scribe))
    if farm.service.workshop.engine is not None:
        app.state.metrics.registry.register(Leaning(farm.service.workshop.engine))
    if farm.service.workshop.databases is not None:
        app.state.metrics.registry.register(Standing(farm.service.workshop.databases))
    app.add_exception_handler(WikiholtError, failures.on_error)
    app.add_exception_handler(RequestValidationError, failures.on_invalid)
    app.add_exception_handler(HTTPException, failures.on_refusal)
    return app


def _surround(app: FastAPI, farm: Farm, *, shared: bool) -> None:
    app.add_middleware(
        Edge, limits=EdgeLimits(farm.settings.limit_body_bytes, shared=shared), metrics=app.state.metrics
    )


def _add_routes(app: FastAPI, parts: Sequence[ModuleType]) -> None:
    """Add the routes in one flat list: an answer of 405 and the figures go by it."""
    for part in parts:
        app.router.routes.extend(part.router.routes)
