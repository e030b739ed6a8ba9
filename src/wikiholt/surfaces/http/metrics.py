"""Figures for Prometheus."""

from typing import Annotated

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.surfaces.http.counting import ServiceMetrics
from wikiholt.surfaces.http.parameters import NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import RequestContextDep

metrics_router = APIRouter(tags=["service"])


@metrics_router.get(
    "/metrics",
    response_class=Response,
    responses=describe_error_responses() | {200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}},
)
def metrics(request: Request, context: RequestContextDep, _: Annotated[NoParams, parse_query(NoParams)]) -> Response:
    """Figures of the service, for an operator's key."""
    context.require_metrics_access()
    held: ServiceMetrics = request.app.state.metrics
    return Response(generate_latest(held.registry), media_type=CONTENT_TYPE_LATEST)
