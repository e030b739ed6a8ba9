"""Writing pages: each write is a commit, based on the revision its writer has read, and wakes the index."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header
from starlette.responses import Response

from wikiholt.contents.locating import new_file
from wikiholt.errors import InvalidPage, PageExists
from wikiholt.model import Author, Scope, Written
from wikiholt.surfaces.documents.pages import (
    DeletedDocument,
    RenamedDocument,
    WrittenDocument,
    deleted_document,
    renamed_document,
    written_document,
)
from wikiholt.surfaces.http.admission import Deed, Wrote
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
from wikiholt.surfaces.http.visits import OpenWiki, Who

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
    path, by_header = wiki.names.meant(path), if_match is not None or if_none_match is not None
    with conditions(by_header=by_header):
        based = None if if_none_match else expected(wiki, path, body, if_match)
        author, message = author_of(wiki, body, by), body.commit_message or ""
        try:
            written = wiki.handle.contents.put(
                path, body.content, author, message, expected=based, create_only=based is None
            )
        except PageExists:
            raise taken_already(wiki, path, by_header=by_header) from None
    _saved(wiki, written, author, message)
    status = 201 if written.created else 200
    return json_response(written_document(written, wiki.names), status, etag=f'"{written.revision}"')


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
    path = wiki.names.meant(path)
    if not body.revision and if_match is None:
        raise InvalidPage("The revision is not said.", hint="Read the page, then send its revision with the change.")
    if body.old_string == body.new_string:
        raise InvalidPage("old_string and new_string are the same.", hint="Say what shall change.")
    with conditions(by_header=if_match is not None):
        based = expected(wiki, path, body, if_match)
        author, message = author_of(wiki, body, by), body.commit_message or ""
        written = wiki.handle.contents.patch(path, body.old_string, body.new_string, author, message, expected=based)
    _saved(wiki, written, author, message)
    return json_response(written_document(written, wiki.names), etag=f'"{written.revision}"')


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
    return deleted_response(who.wiki(Scope.WRITE), path, sent_body.read(), if_match, by)


def deleted_response(wiki: OpenWiki, path: str, edit: Edit, if_match: str | None, by: str | None) -> Response:
    """Delete the page of this path; raises PageNotFound."""
    path = wiki.names.meant(path)
    with conditions(by_header=if_match is not None):
        based = expected(wiki, path, edit, if_match)
        author, message = author_of(wiki, edit, by), edit.commit_message or ""
        deleted = wiki.handle.contents.delete(path, author, message, expected=based)
    wiki.wrote(Wrote(Deed.DELETED, deleted.path, (deleted.file,), author, message))
    return json_response(deleted_document(deleted, wiki.names))


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
    path, new_path = wiki.names.meant(path), wiki.names.meant(body.new_path)
    with conditions(by_header=if_match is not None):
        based = expected(wiki, path, body, if_match)
        author, message = author_of(wiki, body, by), body.commit_message or ""
        renamed = wiki.handle.contents.rename(
            path,
            new_path,
            author,
            message,
            expected=based,
            update_links=body.update_links,
            spelled=wiki.names.spelled(new_path),
        )
    files = (renamed.file, *map(new_file, renamed.updated))
    wiki.wrote(Wrote(Deed.RENAMED, renamed.old_path, files, author, message, renamed.path))
    return json_response(renamed_document(renamed, wiki.names), etag=f'"{renamed.revision}"')


def _saved(wiki: OpenWiki, written: Written, author: Author, message: str) -> None:
    if written.changed:
        wiki.wrote(Wrote(Deed.SAVED, written.path, (written.file,), author, message))
