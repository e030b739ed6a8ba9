"""Links between pages."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from wikiholt.model import Scope
from wikiholt.surfaces.documents.links import (
    GraphDocument,
    LinksDocument,
    OrphansDocument,
    build_graph_document,
    build_links_document,
    build_orphans_document,
)
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.etags import IfNoneMatch, matches_etag, make_not_modified_response, make_weak_etag
from wikiholt.surfaces.http.pages import PagePath
from wikiholt.surfaces.http.parameters import NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import describe_error_responses
from wikiholt.surfaces.http.visits import RequestContextDep

links_router = APIRouter(prefix="/api/v1", tags=["links"])


@links_router.get("/links", response_model=GraphDocument, responses=describe_error_responses(304))
def graph(context: RequestContextDep, _: Annotated[NoParams, parse_query(NoParams)], if_none_match: IfNoneMatch = None) -> Response:
    """List all pages and the links between them."""
    wiki = context.open_wiki(Scope.READ)
    tag = make_weak_etag("links", wiki.handle.get_version_token())
    if if_none_match and matches_etag(if_none_match, tag):
        return make_not_modified_response(tag)
    return make_json_response(build_graph_document(wiki.handle.pages.build_graph(), wiki.path_style), etag=tag)


@links_router.get("/links/{path:path}", response_model=LinksDocument, responses=describe_error_responses(404))
def links(context: RequestContextDep, path: PagePath, _: Annotated[NoParams, parse_query(NoParams)]) -> Response:
    """List the pages a page links to, and those that link to it."""
    wiki = context.open_wiki(Scope.READ)
    return make_json_response(build_links_document(wiki.handle.pages.get_links(wiki.path_style.to_git_path(path)), wiki.path_style))


@links_router.get("/orphans", response_model=OrphansDocument, responses=describe_error_responses())
def orphans(context: RequestContextDep, _: Annotated[NoParams, parse_query(NoParams)]) -> Response:
    """List the pages that no other page links to."""
    wiki = context.open_wiki(Scope.READ)
    return make_json_response(build_orphans_document(wiki.handle.pages.find_orphans(), wiki.path_style))
