"""Links between pages."""

from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from wikiholt.model import Scope
from wikiholt.surfaces.documents.links import (
    GraphDocument,
    LinksDocument,
    OrphansDocument,
    graph_document,
    links_document,
    orphans_document,
)
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.etags import Held, names, not_modified, weak
from wikiholt.surfaces.http.pages import PagePath
from wikiholt.surfaces.http.parameters import Nothing
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import Who

router = APIRouter(prefix="/api/v1", tags=["links"])


@router.get("/links", response_model=GraphDocument, responses=declared(304))
def graph(who: Who, _: Annotated[Nothing, taken(Nothing)], held: Held = None) -> Response:
    """List all pages and the links between them."""
    wiki = who.wiki(Scope.READ)
    tag = weak("links", wiki.handle.stamp())
    if held and names(held, tag):
        return not_modified(tag)
    return json_response(graph_document(wiki.handle.contents.graph(), wiki.names), etag=tag)


@router.get("/links/{path:path}", response_model=LinksDocument, responses=declared(404))
def links(who: Who, path: PagePath, _: Annotated[Nothing, taken(Nothing)]) -> Response:
    """List the pages a page links to, and those that link to it."""
    wiki = who.wiki(Scope.READ)
    return json_response(links_document(wiki.handle.contents.links(wiki.names.meant(path)), wiki.names))


@router.get("/orphans", response_model=OrphansDocument, responses=declared())
def orphans(who: Who, _: Annotated[Nothing, taken(Nothing)]) -> Response:
    """List the pages that no other page links to."""
    wiki = who.wiki(Scope.READ)
    return json_response(orphans_document(wiki.handle.contents.orphans(), wiki.names))
