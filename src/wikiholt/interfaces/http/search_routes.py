"""Search: by query, by page, and what there is to filter by."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from wikiholt.domain.search import SearchResult
from wikiholt.domain.wiki import Scope
from wikiholt.interfaces.http.problem_details import describe_error_responses
from wikiholt.interfaces.http.query_params import (
    Count,
    ListParams,
    NoParams,
    SearchParams,
    SemanticParams,
    SimilarParams,
    parse_query,
)
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import (
    IfNoneMatch,
    make_json_response,
    make_not_modified_response,
    make_weak_etag,
    matches_etag,
)
from wikiholt.interfaces.schemas.page_schemas import FacetsDocument, build_facets_document
from wikiholt.interfaces.schemas.search_schemas import (
    QueryReportDocument,
    SearchResultDocument,
    build_query_report_document,
    build_result_document,
)
from wikiholt.wikis.session import PathStyle, WikiSession

router = APIRouter(prefix="/api/v1", tags=["search"])


@router.get("/search", response_model=SearchResultDocument, responses=describe_error_responses(304))
def search(
    context: RequestContextDep,
    params: Annotated[SearchParams, parse_query(SearchParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Find pages by meaning and by words."""
    return _run_search(context.open_wiki(Scope.READ), params, if_none_match)


@router.get("/semantic-search", response_model=SearchResultDocument, responses=describe_error_responses(304))
def semantic_search(
    context: RequestContextDep,
    params: Annotated[SemanticParams, parse_query(SemanticParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Find pages by meaning; parameters and fields are those of otterwiki-semantic-search, and more."""
    return _run_search(context.open_wiki(Scope.READ), params, if_none_match)


@router.get("/similar", response_model=SearchResultDocument, responses=describe_error_responses(304, 404))
def similar(
    context: RequestContextDep,
    params: Annotated[SimilarParams, parse_query(SimilarParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Find the pages nearest in meaning to one page."""
    wiki = context.open_wiki(Scope.READ)
    with wiki.use_handle() as handle:
        path, where = wiki.path_style.to_git_path(params.path), wiki.to_git_filter(params.to_filter())
        tag = make_weak_etag("similar", handle.get_version_token(), path, params.n, where)
        return _make_cached_response(
            tag, if_none_match, wiki.path_style, lambda: handle.find_similar(path, params.n, where)
        )


@router.get("/facets", response_model=FacetsDocument, responses=describe_error_responses(304))
def facets(
    context: RequestContextDep,
    params: Annotated[ListParams, parse_query(ListParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the categories, tags and folders there are, with how many pages each has."""
    wiki = context.open_wiki(Scope.READ)
    with wiki.use_handle() as handle:
        tag = make_weak_etag("facets", handle.get_version_token(), params.to_filter())
        if if_none_match and matches_etag(if_none_match, tag):
            return make_not_modified_response(tag)
        return make_json_response(
            build_facets_document(handle.pages.get_facets(wiki.to_git_filter(params.to_filter()))), etag=tag
        )


def _run_search(wiki: WikiSession, params: SearchParams, if_none_match: str | None) -> Response:
    request = params.to_request()
    request = replace(request, where=wiki.to_git_filter(request.where))
    if params.fresh:
        wiki.wait_until_fresh()
    with wiki.use_handle() as handle:
        tag = make_weak_etag(handle.get_version_token(), handle.reranker_identity, request)
        return _make_cached_response(
            tag, if_none_match, wiki.path_style, lambda: handle.search(request, interface=wiki.interface)
        )


def _make_cached_response(
    etag: str, if_none_match: str | None, path_style: PathStyle, get_result: Callable[[], SearchResult]
) -> Response:
    if if_none_match and matches_etag(if_none_match, etag):
        return make_not_modified_response(etag)
    found = get_result()
    # A degraded answer is one that the same index may better in a moment: it is not worth keeping.
    return make_json_response(build_result_document(found, path_style), etag="" if found.degraded else etag)


# What was searched for in a wiki, for its admins: what others typed is not for every reader.


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
