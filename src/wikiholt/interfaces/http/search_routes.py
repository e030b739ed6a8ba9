"""Routes for search: by query, by page, filter values, and the query report."""

from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from wikiholt.domain.search import SearchInterface
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidQuery
from wikiholt.interfaces.http.middleware import limit_searches
from wikiholt.interfaces.http.problem_details import describe_route, get_public_message
from wikiholt.interfaces.http.query_params import (
    Count,
    FacetQueryParams,
    NoParams,
    SearchParams,
    SemanticParams,
    SimilarParams,
    WikiSearchParams,
    parse_query,
)
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import (
    NO_STORE,
    IfNoneMatch,
    make_cached_response,
    make_json_response,
    make_weak_etag,
)
from wikiholt.interfaces.http.similar_paths import suggest_paths
from wikiholt.interfaces.schemas.page_schemas import FacetsDocument, build_facets_document
from wikiholt.interfaces.schemas.search_schemas import (
    QueryReportDocument,
    SearchResultDocument,
    build_query_report_document,
    build_result_document,
)
from wikiholt.search.hits import count_hit_facets
from wikiholt.search.request import MAX_HITS, SearchRequest
from wikiholt.wikis.multi_search import OpenedWikis, search_wikis
from wikiholt.wikis.session import WikiSession

router = APIRouter(prefix="/api/v1", tags=["search"])


@router.get("/search", **describe_route(SearchResultDocument, 304))
@limit_searches
def search(
    context: RequestContextDep,
    params: Annotated[WikiSearchParams, parse_query(WikiSearchParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Find pages by meaning and by words; with an operator key or a list of keys, in several wikis."""
    opened = context.open_wikis(params.wiki)
    if len(opened.sessions) == 1 and not opened.failures:
        return _run_search(opened.sessions[0], params, if_none_match)
    return _run_merged_search(opened, params)


@router.get(
    "/semantic-search",
    operation_id="semantic_search_api_v1_semantic_search_get",
    **describe_route(SearchResultDocument, 304),
)
@limit_searches
def search_semantic(
    context: RequestContextDep,
    params: Annotated[SemanticParams, parse_query(SemanticParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Find pages by meaning, with a superset of the parameters and fields of otterwiki-semantic-search."""
    wiki = context.open_wiki(Scope.READ)
    if "max_chunks_per_page" not in params.model_fields_set:
        params = params.model_copy(update={"max_chunks_per_page": context.semantic_chunks_per_page})
    return _run_search(wiki, params, if_none_match)


@router.get("/similar", operation_id="similar_api_v1_similar_get", **describe_route(SearchResultDocument, 304, 404))
@limit_searches
def find_similar(
    context: RequestContextDep,
    params: Annotated[SimilarParams, parse_query(SimilarParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Find the pages most similar in meaning to one page."""
    wiki = context.open_wiki(Scope.READ)
    with suggest_paths(wiki, params.path), wiki.open_snapshot() as snapshot:
        path, where = wiki.path_style.to_git_path(params.path), wiki.to_git_filter(params.to_filter())
        tag = make_weak_etag("similar", wiki.wiki, snapshot.version, path, params.n, where)
        return make_cached_response(
            tag,
            if_none_match,
            lambda: build_result_document(
                wiki.handle.find_similar(path, params.n, where, snapshot=snapshot), wiki.path_style
            ),
        )


@router.get("/facets", operation_id="facets_api_v1_facets_get", **describe_route(FacetsDocument, 304))
@limit_searches
def get_facets(
    context: RequestContextDep,
    params: Annotated[FacetQueryParams, parse_query(FacetQueryParams)],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """List the categories, tags, folders and values of frontmatter properties, with their page counts.

    With a query, only those of pages that contain its words or are likely answers, among its best 100 pages.
    """
    wiki = context.open_wiki(Scope.READ)
    where = wiki.to_git_filter(params.to_filter())
    if params.q.strip():
        with wiki.use_handle() as handle:
            result = handle.search(SearchRequest(params.q, MAX_HITS, params.mode, where, rerank=False))
        return make_json_response(build_facets_document(count_hit_facets(result.hits, where.path_prefix)))
    with wiki.open_snapshot() as snapshot:
        tag = make_weak_etag("facets", wiki.wiki, snapshot.version, params.to_filter(), params.facets)
        return make_cached_response(
            tag, if_none_match, lambda: build_facets_document(snapshot.pages.get_facets(where, params.facets))
        )


def _run_search(wiki: WikiSession, params: SearchParams, if_none_match: str | None) -> Response:
    request = params.to_request()
    request = replace(request, where=wiki.to_git_filter(request.where))
    if params.fresh:
        wiki.wait_until_fresh()
    elif params.at_least:
        wiki.wait_for_revision(params.at_least)
    with wiki.open_snapshot() as snapshot:
        tag = make_weak_etag(wiki.wiki, snapshot.version, wiki.handle.reranker_identity, request)
        return make_cached_response(
            tag,
            if_none_match,
            lambda: build_result_document(
                wiki.handle.search(request, interface=wiki.interface, snapshot=snapshot), wiki.path_style
            ),
        )


def _run_merged_search(opened: OpenedWikis, params: SearchParams) -> Response:
    """Search each wiki by itself and merge the hits."""
    interfaces = {session.interface for session in opened.sessions}
    if params.at_least or (params.fresh and interfaces != {SearchInterface.CLI}):
        raise InvalidQuery("fresh and at_least are for one wiki.", hint="Name the wiki: /w/SLUG/api/v1/search")
    if params.fresh:
        for session in opened.sessions:
            session.wait_until_fresh()
    result = search_wikis(
        [session.handle for session in opened.sessions],
        params.to_request(),
        interface=interfaces.pop(),
        failures=opened.failures,
        describe_error=lambda error: get_public_message(error)[0],
    )
    return make_json_response(build_result_document(result), headers=NO_STORE)


# The query report; it requires an admin key, because it shows what others typed


class ReportParams(NoParams):
    """Parameters of the query report."""

    days: Count = Field(0, ge=0, le=3660, description="Number of days to report; 0 means all that are kept.")
    limit: Count = Field(10, ge=1, le=1000, description="Maximum number of rows of each list.")


@router.get("/report", operation_id="report_api_v1_report_get", **describe_route(QueryReportDocument, 404))
def get_query_report(
    context: RequestContextDep, params: Annotated[ReportParams, parse_query(ReportParams)]
) -> Response:
    """Show frequent, unanswered and slow queries, and pages that no search finds."""
    wiki = context.open_wiki(Scope.ADMIN)
    report = wiki.handle.query_log.build_report(params.days, params.limit)
    document = build_query_report_document(wiki.wiki.slug, report, wiki.path_style)
    return make_json_response(document, headers=NO_STORE)
