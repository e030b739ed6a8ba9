"""Search: by query, by page, and what there is to filter by."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from wikiholt.model import SearchResult, Scope
from wikiholt.surfaces.documents import SearchResultDocument, build_result_document
from wikiholt.surfaces.documents.links import FacetsDocument, build_facets_document
from wikiholt.surfaces.documents.names import PathStyle
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.etags import IfNoneMatch, matches_etag, make_not_modified_response, make_weak_etag
from wikiholt.surfaces.http.parameters import SearchParams, SemanticParams, SimilarParams, ListParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import WikiSession, RequestContextDep

router = APIRouter(prefix="/api/v1", tags=["search"])


@router.get("/search", response_model=SearchResultDocument, responses=describe_error_responses(304))
def search(context: RequestContextDep, params: Annotated[SearchParams, parse_query(SearchParams)], if_none_match: IfNoneMatch = None) -> Response:
    """Find pages by meaning and by words."""
    return _run_search(context.open_wiki(Scope.READ), params, if_none_match)


@router.get("/semantic-search", response_model=SearchResultDocument, responses=describe_error_responses(304))
def semantic_search(context: RequestContextDep, params: Annotated[SemanticParams, parse_query(SemanticParams)], if_none_match: IfNoneMatch = None) -> Response:
    """Find pages by meaning; parameters and fields are those of otterwiki-semantic-search, and more."""
    return _run_search(context.open_wiki(Scope.READ), params, if_none_match)


@router.get("/similar", response_model=SearchResultDocument, responses=describe_error_responses(304, 404))
def similar(context: RequestContextDep, params: Annotated[SimilarParams, parse_query(SimilarParams)], if_none_match: IfNoneMatch = None) -> Response:
    """Find the pages nearest in meaning to one page."""
    wiki = context.open_wiki(Scope.READ)
    with wiki.use_handle() as handle:
        path, where = wiki.path_style.to_git_path(params.path), wiki.to_git_filter(params.to_filter())
        tag = make_weak_etag("similar", handle.get_version_token(), path, params.n, where)
        return _make_cached_response(tag, if_none_match, wiki.path_style, lambda: handle.find_similar(path, params.n, where))


@router.get("/facets", response_model=FacetsDocument, responses=describe_error_responses(304))
def facets(context: RequestContextDep, params: Annotated[ListParams, parse_query(ListParams)], if_none_match: IfNoneMatch = None) -> Response:
    """List the categories, tags and folders there are, with how many pages each has."""
    wiki = context.open_wiki(Scope.READ)
    with wiki.use_handle() as handle:
        tag = make_weak_etag("facets", handle.get_version_token(), params.to_filter())
        if if_none_match and matches_etag(if_none_match, tag):
            return make_not_modified_response(tag)
        return make_json_response(build_facets_document(handle.pages.get_facets(wiki.to_git_filter(params.to_filter()))), etag=tag)


def _run_search(wiki: WikiSession, params: SearchParams, if_none_match: str | None) -> Response:
    request = params.to_request()
    request = replace(request, where=wiki.to_git_filter(request.where))
    if params.fresh:
        wiki.wait_until_fresh()
    with wiki.use_handle() as handle:
        tag = make_weak_etag(handle.get_version_token(), handle.reranker_identity, request)
        return _make_cached_response(tag, if_none_match, wiki.path_style, lambda: handle.search(request, interface=wiki.interface))


def _make_cached_response(etag: str, if_none_match: str | None, path_style: PathStyle, get_result: Callable[[], SearchResult]) -> Response:
    if if_none_match and matches_etag(if_none_match, etag):
        return make_not_modified_response(etag)
    found = get_result()
    # A degraded answer is one that the same index may better in a moment: it is not worth keeping.
    return make_json_response(build_result_document(found, path_style), etag="" if found.degraded else etag)
