"""The service as an ASGI application."""

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from wikiholt import __version__
from wikiholt.errors import WikiholtError
from wikiholt.surfaces.http import (
    backups,
    failures,
    health,
    indexing,
    keys,
    links,
    metrics,
    pages,
    reference,
    search,
    webhook,
    wikis,
    writing,
)
from wikiholt.surfaces.http.counting import Keeping, Metrics
from wikiholt.surfaces.http.edge import Edge, EdgeLimits
from wikiholt.surfaces.web.routes import add_pages
from wikiholt.wiring import Farm

_ABOUT = "Search for wikis that live in git: by meaning and by word. Below /w/SLUG the same addresses are one wiki's."
_SHARED = ("ETag", "Location", "RateLimit", "RateLimit-Policy", "Retry-After")


def create_app(farm: Farm) -> FastAPI:
    """The application of a farm; who makes the farm starts and stops its keeper."""
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
    app.state.metrics = Metrics()
    app.state.metrics.registry.register(Keeping(farm.keeper.counters))
    _add_routes(app)
    add_pages(app, farm)
    app.add_exception_handler(WikiholtError, failures.on_error)
    app.add_exception_handler(RequestValidationError, failures.on_invalid)
    app.add_exception_handler(HTTPException, failures.on_refusal)
    origins = farm.settings.serve_cors_origins
    app.add_middleware(
        Edge,
        limits=EdgeLimits(farm.settings.limit_body_bytes, shared=bool(origins)),
        metrics=app.state.metrics,
    )
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "If-Match", "If-None-Match"],
            expose_headers=list(_SHARED),
        )
    return app


def _add_routes(app: FastAPI) -> None:
    """Add the routes in one flat list: an answer of 405 and the figures go by it."""
    # Routes of one page's history, rename and links come before the page itself, whose path may hold anything.
    for part in (search, pages, writing, links, indexing, backups, webhook, wikis, keys, health, metrics):
        app.router.routes.extend(part.router.routes)
    app.add_route("/openapi.json", reference.openapi, include_in_schema=False)
    app.add_route("/docs", reference.docs, include_in_schema=False)
