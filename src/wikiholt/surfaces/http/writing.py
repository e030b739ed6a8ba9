"""Writing pages: each write is a commit, based on the revision its writer has read, and wakes the index."""

from typing import Annotated, Literal

from fastapi import APIRouter, Header
from starlette.responses import Response

from wikiholt.contents.locating import get_new_file
from wikiholt.errors import InvalidPage, PageExists
from wikiholt.model import Author, Scope, PageWriteResult
from wikiholt.surfaces.documents.pages import (
    PageDeleteDocument,
    PageRenameDocument,
    PageWriteDocument,
    build_delete_document,
    build_rename_document,
    build_write_document,
)
from wikiholt.surfaces.http.admission import ChangeKind, CommitEvent
from wikiholt.surfaces.http.bodies import make_json_response
from wikiholt.surfaces.http.edits import (
    AuthorHeader,
    WriteBody,
    IfMatch,
    PatchPage,
    PutPage,
    RenamePage,
    get_author,
    check_preconditions,
    get_expected_revision,
    build_page_exists_error,
)
from wikiholt.surfaces.http.pages import PagePath
from wikiholt.surfaces.http.parameters import NoParams
from wikiholt.surfaces.http.queries import parse_query
from wikiholt.surfaces.http.responses import Responses, describe_error_responses
from wikiholt.surfaces.http.sending import LazyBody, read_body
from wikiholt.surfaces.http.visits import WikiSession, RequestContextDep

write_router = APIRouter(prefix="/api/v1", tags=["pages"])

_WRITE_RESPONSES = describe_error_responses(404, 409, 412, 413)
_CREATED_RESPONSE: Responses = {201: {"model": PageWriteDocument, "description": "The page is new."}}
IfNoneMatchAny = Annotated[Literal["*"] | None, Header(alias="If-None-Match", description="`*`: only if it is new.")]
RawPutPage = Annotated[LazyBody[PutPage], read_body(PutPage)]
RawPatchPage = Annotated[LazyBody[PatchPage], read_body(PatchPage)]
RawRenamePage = Annotated[LazyBody[RenamePage], read_body(RenamePage)]
RawWriteBody = Annotated[LazyBody[WriteBody], read_body(WriteBody, optional=True)]
NoQuery = Annotated[NoParams, parse_query(NoParams)]


@write_router.put("/pages/{path:path}", response_model=PageWriteDocument, responses=_WRITE_RESPONSES | _CREATED_RESPONSE)
def put_page(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawPutPage,
    _: NoQuery,
    if_match: IfMatch = None,
    if_none_match: IfNoneMatchAny = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Write a page. One that is there already takes the revision it was read at, in the body or as If-Match."""
    wiki, body = context.open_wiki(Scope.WRITE), raw_body.read()
    path, by_header = wiki.path_style.to_git_path(path), if_match is not None or if_none_match is not None
    with check_preconditions(by_header=by_header):
        based = None if if_none_match else get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        try:
            written = wiki.handle.pages.write(
                path, body.content, author, message, expected=based, create_only=based is None
            )
        except PageExists:
            raise build_page_exists_error(wiki, path, by_header=by_header) from None
    _report_saved(wiki, written, author, message)
    status = 201 if written.created else 200
    return make_json_response(build_write_document(written, wiki.path_style), status, etag=f'"{written.revision}"')


@write_router.patch("/pages/{path:path}", response_model=PageWriteDocument, responses=_WRITE_RESPONSES)
def patch_page(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawPatchPage,
    _: NoQuery,
    if_match: IfMatch = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Replace the one place where the page says `old_string`; takes the revision it was read at."""
    wiki, body = context.open_wiki(Scope.WRITE), raw_body.read()
    path = wiki.path_style.to_git_path(path)
    if not body.revision and if_match is None:
        raise InvalidPage("The revision is not said.", hint="Read the page, then send its revision with the change.")
    if body.old_string == body.new_string:
        raise InvalidPage("old_string and new_string are the same.", hint="Say what shall change.")
    with check_preconditions(by_header=if_match is not None):
        based = get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        written = wiki.handle.pages.replace_text(path, body.old_string, body.new_string, author, message, expected=based)
    _report_saved(wiki, written, author, message)
    return make_json_response(build_write_document(written, wiki.path_style), etag=f'"{written.revision}"')


@write_router.delete("/pages/{path:path}", response_model=PageDeleteDocument, responses=_WRITE_RESPONSES)
def delete_page(
    context: RequestContextDep,
    path: PagePath,
    _: NoQuery,
    raw_body: RawWriteBody,
    if_match: IfMatch = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Delete a page; what it said stays in the history."""
    return delete_and_respond(context.open_wiki(Scope.WRITE), path, raw_body.read(), if_match, author_header)


def delete_and_respond(wiki: WikiSession, path: str, body: WriteBody, if_match: str | None, author_header: str | None) -> Response:
    """Delete the page of this path; raises PageNotFound."""
    path = wiki.path_style.to_git_path(path)
    with check_preconditions(by_header=if_match is not None):
        based = get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        deleted = wiki.handle.pages.delete(path, author, message, expected=based)
    wiki.report_commit(CommitEvent(ChangeKind.DELETED, deleted.path, (deleted.file,), author, message))
    return make_json_response(build_delete_document(deleted, wiki.path_style))


@write_router.post("/pages/{path:path}/rename", response_model=PageRenameDocument, responses=_WRITE_RESPONSES)
def rename_page(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawRenamePage,
    _: NoQuery,
    if_match: IfMatch = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Give a page another path; links of other pages follow in the same commit."""
    wiki, body = context.open_wiki(Scope.WRITE), raw_body.read()
    path, new_path = wiki.path_style.to_git_path(path), wiki.path_style.to_git_path(body.new_path)
    with check_preconditions(by_header=if_match is not None):
        based = get_expected_revision(wiki, path, body, if_match)
        author, message = get_author(wiki, body, author_header), body.commit_message or ""
        renamed = wiki.handle.pages.rename(
            path,
            new_path,
            author,
            message,
            expected=based,
            update_links=body.update_links,
            link_path=wiki.path_style.to_link_path(new_path),
        )
    files = (renamed.file, *map(get_new_file, renamed.updated))
    wiki.report_commit(CommitEvent(ChangeKind.RENAMED, renamed.old_path, files, author, message, renamed.path))
    return make_json_response(build_rename_document(renamed, wiki.path_style), etag=f'"{renamed.revision}"')


def _report_saved(wiki: WikiSession, result: PageWriteResult, author: Author, message: str) -> None:
    if result.changed:
        wiki.report_commit(CommitEvent(ChangeKind.SAVED, result.path, (result.file,), author, message))
