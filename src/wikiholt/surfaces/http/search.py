"""Search: by query, by page, and what there is to filter by."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter
from starlette.responses import Response

from wikiholt.model import Answer, Scope
from wikiholt.surfaces.documents import AnswerDocument, answer_document
from wikiholt.surfaces.documents.links import FacetsDocument, facets_document
from wikiholt.surfaces.documents.names import Names
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.etags import Held, names, not_modified, weak
from wikiholt.surfaces.http.parameters import Asked, AskedByMeaning, AskedLike, Listed
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import OpenWiki, Who

router = APIRouter(prefix="/api/v1", tags=["search"])


@router.get("/search", response_model=AnswerDocument, responses=declared(304))
def search(who: Who, asked: Annotated[Asked, taken(Asked)], held: Held = None) -> Response:
    """Find pages by meaning and by words."""
    return _found(who.wiki(Scope.READ), asked, held)


@router.get("/semantic-search", response_model=AnswerDocument, responses=declared(304))
def semantic_search(who: Who, asked: Annotated[AskedByMeaning, taken(AskedByMeaning)], held: Held = None) -> Response:
    """Find pages by meaning; parameters and fields are those of otterwiki-semantic-search, and more."""
    return _found(who.wiki(Scope.READ), asked, held)


@router.get("/similar", response_model=AnswerDocument, responses=declared(304, 404))
def similar(who: Who, asked: Annotated[AskedLike, taken(AskedLike)], held: Held = None) -> Response:
    """Find the pages nearest in meaning to one page."""
    wiki = who.wiki(Scope.READ)
    with wiki.answering() as handle:
        path, where = wiki.names.meant(asked.path), wiki.narrowed(asked.filter())
        tag = weak("similar", handle.stamp(), path, asked.n, where)
        return _tagged(tag, held, wiki.names, lambda: handle.similar(path, asked.n, where))


@router.get("/facets", response_model=FacetsDocument, responses=declared(304))
def facets(who: Who, asked: Annotated[Listed, taken(Listed)], held: Held = None) -> Response:
    """List the categories, tags and folders there are, with how many pages each has."""
    wiki = who.wiki(Scope.READ)
    with wiki.answering() as handle:
        tag = weak("facets", handle.stamp(), asked.filter())
        if held and names(held, tag):
            return not_modified(tag)
        return json_response(facets_document(handle.contents.facets(wiki.narrowed(asked.filter()))), etag=tag)


def _found(wiki: OpenWiki, asked: Asked, held: str | None) -> Response:
    request = asked.request()
    request = replace(request, where=wiki.narrowed(request.where))
    if asked.fresh:
        wiki.freshen()
    with wiki.answering() as handle:
        tag = weak(handle.stamp(), handle.reranker, request)
        return _tagged(tag, held, wiki.names, lambda: handle.search(request, surface=wiki.surface))


def _tagged(tag: str, held: str | None, known_as: Names, answer: Callable[[], Answer]) -> Response:
    if held and names(held, tag):
        return not_modified(tag)
    found = answer()
    # A degraded answer is one that the same index may better in a moment: it is not worth keeping.
    return json_response(answer_document(found, known_as), etag="" if found.degraded else tag)
