"""What was searched for in a wiki, for its admins: what others typed is not for every reader."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from wikiholt.model import Scope
from wikiholt.surfaces.documents.queries import QueryReportDocument, build_query_report_document
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.parameters import Count, NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import RequestContextDep

report_router = APIRouter(prefix="/api/v1", tags=["search"])


class ReportParams(NoParams):
    """Of how long, and how much."""

    days: Count = Field(0, ge=0, le=3660, description="The last so many days; 0 means all that is kept.")
    limit: Count = Field(10, ge=1, le=1000, description="Rows of each list at most.")


@report_router.get("/report", response_model=QueryReportDocument, responses=describe_error_responses(404))
def report(context: RequestContextDep, params: Annotated[ReportParams, parse_query(ReportParams)]) -> Response:
    """Say what is searched for often, without a result or slowly, and which pages nobody finds."""
    wiki = context.open_wiki(Scope.ADMIN)
    found = wiki.handle.query_log.build_report(params.days, params.limit)
    document = build_query_report_document(wiki.wiki.slug, found, wiki.path_style)
    return make_json_response(document, headers={"Cache-Control": "no-store"})
