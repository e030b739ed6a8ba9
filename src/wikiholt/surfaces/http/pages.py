"""Reading pages: the list, one page, its history, what changed lately."""

from contextlib import suppress
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from wikiholt.errors import PageNotFound
from wikiholt.model import PageContent, Scope
from wikiholt.surfaces.documents.commits import (
    ChangelogDocument,
    HistoryDocument,
    changelog_document,
    commit_document,
)
from wikiholt.surfaces.documents.pages import PageDocument, PageListDocument, list_document, page_document
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.etags import Held, names, not_modified, weak
from wikiholt.surfaces.http.parameters import Count, Nothing, Paged
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import declared
from wikiholt.surfaces.http.visits import OpenWiki, Who

router = APIRouter(prefix="/api/v1", tags=["pages"])

PagePath = Annotated[str, Path(max_length=1100, description="The page's path; slashes may stand as they are.")]


class Limited(Nothing):
    """The newest of a list of commits."""

    limit: Count = Field(50, ge=1, le=1000, description="How many at most.")


class Changes(Limited):
    """The newest commits, or those before them."""

    offset: Count = Field(0, ge=0, le=1_000_000, description="How many to leave out at the beginning.")


class At(Nothing):
    """A page at some time."""

    revision: str | None = Field(
        None, pattern=r"^[0-9a-fA-F]{7,64}$", description="A commit, by 7 digits or more; the newest if left out."
    )


@router.get("/pages", response_model=PageListDocument, responses=declared(304))
def list_pages(who: Who, asked: Annotated[Paged, taken(Paged)], held: Held = None) -> Response:
    """List the pages, or those that pass the filters, by path."""
    wiki = who.wiki(Scope.READ)
    tag = weak("pages", wiki.handle.stamp(), asked)
    if held and names(held, tag):
        return not_modified(tag)
    found = wiki.handle.contents.list(wiki.narrowed(asked.filter()), asked.limit, asked.offset)
    return json_response(list_document(found, wiki.names), etag=tag)


@router.get("/changelog", response_model=ChangelogDocument, responses=declared())
def changelog(who: Who, asked: Annotated[Changes, taken(Changes)]) -> Response:
    """List the commits that touched a page, newest first."""
    wiki = who.wiki(Scope.READ)
    return json_response(changelog_document(wiki.handle.contents.changelog(asked.limit, asked.offset), wiki.names))


@router.get("/pages/{path:path}/history", response_model=HistoryDocument | PageDocument, responses=declared(404))
def history(who: Who, path: PagePath, asked: Annotated[Limited, taken(Limited)]) -> Response:
    """List the commits that changed a page, newest first."""
    wiki = who.wiki(Scope.READ)
    try:
        commits = wiki.handle.contents.history(wiki.names.meant(path), asked.limit)
    except PageNotFound:
        # The address may also be that of a page which is itself called history.
        with suppress(PageNotFound):
            return page_response(wiki, f"{path}/history")
        raise
    shown = wiki.names.shown(wiki.names.meant(path))
    return json_response({"path": shown, "history": [commit_document(commit) for commit in commits]})


@router.get("/pages/{path:path}", response_model=PageDocument, responses=declared(304, 404))
def read_page(who: Who, path: PagePath, asked: Annotated[At, taken(At)], held: Held = None) -> Response:
    """Read a page as it is at HEAD, or at a revision; its tag is what If-Match of a write takes."""
    return page_response(who.wiki(Scope.READ), path, asked.revision, held)


def page_response(wiki: OpenWiki, path: str, revision: str | None = None, held: str | None = None) -> Response:
    """The page of this path; raises PageNotFound."""
    page = wiki.handle.contents.read(wiki.names.meant(path), revision)
    tag = page_tag(page)
    if held and names(held, tag):
        return not_modified(tag)
    return json_response(page_document(page, wiki.names), etag=tag)


def page_tag(page: PageContent) -> str:
    """The page's revision, and after a dot what else the answer depends on: a write looks at the first part alone."""
    rest = weak(page.links_to, page.linked_from, page.missing, page.blob, page.notes)
    return f'"{page.revision}.{rest[3:-1]}"'
