"""Writing pages: each write is a commit, based on the revision its writer has read, and wakes the index."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header
from starlette.responses import Response

from wikiholt.errors import InvalidPage, PageExists
from wikiholt.model import Scope
from wikiholt.surfaces.documents.pages import (
    DeletedDocument,
    RenamedDocument,
    WrittenDocument,
    deleted_document,
    renamed_document,
    written_document,
)
from wikiholt.surfaces.http.bodies import json_response
from wikiholt.surfaces.http.edits import (
    ByHeader,
    Edit,
    IfMatch,
    PatchPage,
    PutPage,
    RenamePage,
    author_of,
    conditions,
    expected,
    taken_already,
)
from wikiholt.surfaces.http.pages import PagePath
from wikiholt.surfaces.http.parameters import Nothing
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import Responses, declared
from wikiholt.surfaces.http.sending import Sent, sent
from wikiholt.surfaces.http.visits import Who

router = APIRouter(prefix="/api/v1", tags=["pages"])

_WRITES = declared(404, 409, 412, 413)
_CREATED: Responses = {201: {"model": WrittenDocument, "description": "The page is new."}}
OnlyNew = Annotated[Literal["*"] | None, Header(alias="If-None-Match", description="`*`: only if it is new.")]
PutPageBody = Annotated[Sent[PutPage], sent(PutPage)]
PatchPageBody = Annotated[Sent[PatchPage], sent(PatchPage)]
RenamePageBody = Annotated[Sent[RenamePage], sent(RenamePage)]
EditBody = Annotated[Sent[Edit], sent(Edit, optional=True)]
NoQuery = Annotated[Nothing, taken(Nothing)]


@router.put("/pages/{path:path}", response_model=WrittenDocument, responses=_WRITES | _CREATED)
def put_page(
    who: Who,
    path: PagePath,
    sent_body: PutPageBody,
    _: NoQuery,
    if_match: IfMatch = None,
    if_none_match: OnlyNew = None,
    by: ByHeader = None,
) -> Response:
    """Write a page. One that is there already takes the revision it was read at, in the body or as If-Match."""
    wiki, body = who.wiki(Scope.WRITE), sent_body.read()
    by_header = if_match is not None or if_none_match is not None
    with conditions(by_header=by_header):
        based = None if if_none_match else expected(wiki, path, body, if_match)
        author, message = author_of(wiki, body, by), body.commit_message or ""
        try:
            written = wiki.handle.contents.put(
                path, body.content, author, message, expected=based, create_only=based is None
            )
        except PageExists:
            raise taken_already(wiki, path, by_header=by_header) from None
    wiki.wake()
    return json_response(written_document(written), 201 if written.created else 200, etag=f'"{written.revision}"')


@router.patch("/pages/{path:path}", response_model=WrittenDocument, responses=_WRITES)
def patch_page(
    who: Who,
    path: PagePath,
    sent_body: PatchPageBody,
    _: NoQuery,
    if_match: IfMatch = None,
    by: ByHeader = None,
) -> Response:
    """Replace the one place where the page says `old_string`; takes the revision it was read at."""
    wiki, body = who.wiki(Scope.WRITE), sent_body.read()
    if body.revision is None and if_match is None:
        raise InvalidPage("The revision is not said.", hint="Read the page, then send its revision with the change.")
    if body.old_string == body.new_string:
        raise InvalidPage("old_string and new_string are the same.", hint="Say what shall change.")
    with conditions(by_header=if_match is not None):
        based = expected(wiki, path, body, if_match)
        author, message = author_of(wiki, body, by), body.commit_message or ""
        written = wiki.handle.contents.patch(path, body.old_string, body.new_string, author, message, expected=based)
    wiki.wake()
    return json_response(written_document(written), etag=f'"{written.revision}"')


@router.delete("/pages/{path:path}", response_model=DeletedDocument, responses=_WRITES)
def delete_page(
    who: Who,
    path: PagePath,
    _: NoQuery,
    sent_body: EditBody,
    if_match: IfMatch = None,
    by: ByHeader = None,
) -> Response:
    """Delete a page; what it said stays in the history."""
    wiki, edit = who.wiki(Scope.WRITE), sent_body.read()
    with conditions(by_header=if_match is not None):
        based = expected(wiki, path, edit, if_match)
        author = author_of(wiki, edit, by)
        deleted = wiki.handle.contents.delete(path, author, edit.commit_message or "", expected=based)
    wiki.wake()
    return json_response(deleted_document(deleted))


@router.post("/pages/{path:path}/rename", response_model=RenamedDocument, responses=_WRITES)
def rename_page(
    who: Who,
    path: PagePath,
    sent_body: RenamePageBody,
    _: NoQuery,
    if_match: IfMatch = None,
    by: ByHeader = None,
) -> Response:
    """Give a page another path; links of other pages follow in the same commit."""
    wiki, body = who.wiki(Scope.WRITE), sent_body.read()
    with conditions(by_header=if_match is not None):
        based = expected(wiki, path, body, if_match)
        author, message = author_of(wiki, body, by), body.commit_message or ""
        renamed = wiki.handle.contents.rename(
            path, body.new_path, author, message, expected=based, update_links=body.update_links
        )
    wiki.wake()
    return json_response(renamed_document(renamed), etag=f'"{renamed.revision}"')
