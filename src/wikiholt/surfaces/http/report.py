"""What was searched for in a wiki, for its admins: what others typed is not for every reader."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from wikiholt.model import Scope
from wikiholt.surfaces.documents.queries import QueryReportDocument, query_report_document
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.parameters import Count, Nothing
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import Who

router = APIRouter(prefix="/api/v1", tags=["search"])


class Period(Nothing):
    """Of how long, and how much."""

    days: Count = Field(0, ge=0, le=3660, description="The last so many days; 0 means all that is kept.")
    limit: Count = Field(10, ge=1, le=1000, description="Rows of each list at most.")


@router.get("/report", response_model=QueryReportDocument, responses=declared(404))
def report(who: Who, asked: Annotated[Period, taken(Period)]) -> Response:
    """Say what is searched for often, without a result or slowly, and which pages nobody finds."""
    wiki = who.wiki(Scope.ADMIN)
    found = wiki.handle.queries.report(asked.days, asked.limit)
    document = query_report_document(wiki.wiki.slug, found, wiki.names)
    return json_response(document, headers={"Cache-Control": "no-store"})
