"""Figures for Prometheus."""

from typing import Annotated

from fastapi import APIRouter
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.requests import Request
from starlette.responses import Response

from wikiholt.surfaces.http.counting import Metrics
from wikiholt.surfaces.http.parameters import Nothing
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import Who

router = APIRouter(tags=["service"])


@router.get(
    "/metrics",
    response_class=Response,
    responses=declared() | {200: {"description": "Prometheus' text format.", "content": {"text/plain": {}}}},
)
def metrics(request: Request, who: Who, _: Annotated[Nothing, taken(Nothing)]) -> Response:
    """Figures of the service, for an operator's key."""
    who.watches()
    held: Metrics = request.app.state.metrics
    return Response(generate_latest(held.registry), media_type=CONTENT_TYPE_LATEST)
