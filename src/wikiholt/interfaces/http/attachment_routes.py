"""Files attached to pages: the list, one of them, attaching and deleting. Fields are those that otterwiki-mcp reads."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from wikiholt.domain.git import Author
from wikiholt.domain.page import AttachmentResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import AttachmentNotFound, InvalidPage, NotFound, PageExists, PageNotFound
from wikiholt.interfaces.http.page_routes import (
    IfNoneMatchAny,
    NoQuery,
    PagePath,
    RawWriteBody,
    delete_and_respond,
    make_page_response,
)
from wikiholt.interfaces.http.problem_details import Responses, describe_error_responses
from wikiholt.interfaces.http.query_params import Flag, NoParams, parse_query
from wikiholt.interfaces.http.request_context import RequestContextDep
from wikiholt.interfaces.http.responses import PRIVATE_CACHE_CONTROL, make_json_response
from wikiholt.interfaces.http.write_request import (
    AuthorHeader,
    LazyBody,
    PreconditionFailed,
    WriteBody,
    get_author,
    read_body,
)
from wikiholt.interfaces.schemas.attachment_schemas import (
    AttachmentAddDocument,
    AttachmentContentDocument,
    AttachmentRemoveDocument,
    AttachmentsDocument,
    build_attachment_add_document,
    build_attachment_content_document,
    build_attachment_remove_document,
    build_attachments_document,
)
from wikiholt.interfaces.schemas.page_schemas import PageDeleteDocument, PageDocument
from wikiholt.wikis.session import ChangeKind, CommitEvent, WikiSession

router = APIRouter(prefix="/api/v1", tags=["attachments"])

_INERT_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"})
"""What a browser may be told that a file is: nothing in which a script could run."""
_ATTACHMENT_PATH = "/pages/{path:path}/attachments/{filename}"
_ATTACHED_RESPONSE: Responses = {201: {"model": AttachmentAddDocument, "description": "The file is new."}}
FileName = Annotated[str, Path(max_length=300, description="The file's name.")]


class AttachFile(WriteBody):
    """A file, its bytes in base64."""

    filename: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
    content: str


class AttachmentParams(NoParams):
    """In which form a file is wanted."""

    raw: Flag = Field(False, description="The bytes themselves, to be saved, instead of a document.")


RawAttachFile = Annotated[LazyBody[AttachFile], read_body(AttachFile)]


@router.get(
    "/pages/{path:path}/attachments",
    response_model=AttachmentsDocument | PageDocument,
    responses=describe_error_responses(404),
)
def list_attachments(context: RequestContextDep, path: PagePath, _: NoQuery) -> Response:
    """List the files attached to a page."""
    wiki = context.open_wiki(Scope.READ)

    def answer() -> Response:
        found = wiki.handle.pages.list_attachments(wiki.path_style.to_git_path(path))
        return make_json_response(build_attachments_document(found, wiki.path_style))

    return _respond_or_page(answer, lambda: make_page_response(wiki, f"{path}/attachments"))


@router.get(
    _ATTACHMENT_PATH,
    response_model=AttachmentContentDocument | PageDocument,
    responses=describe_error_responses(404, 413),
)
def read_attachment(
    context: RequestContextDep,
    path: PagePath,
    filename: FileName,
    params: Annotated[AttachmentParams, parse_query(AttachmentParams)],
) -> Response:
    """Read a file that is attached to a page: with its bytes in base64, or (raw) the bytes to be saved."""
    wiki = context.open_wiki(Scope.READ)

    def answer() -> Response:
        read = wiki.handle.pages.read_attachment(wiki.path_style.to_git_path(path), filename)
        return (
            _make_raw_response(read)
            if params.raw
            else make_json_response(build_attachment_content_document(read, wiki.path_style))
        )

    return _respond_or_page(answer, lambda: make_page_response(wiki, f"{path}/attachments/{filename}"))


@router.post(
    "/pages/{path:path}/attachments",
    response_model=AttachmentAddDocument,
    responses=describe_error_responses(404, 409, 412, 413) | _ATTACHED_RESPONSE,
)
def attach(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawAttachFile,
    _: NoQuery,
    if_none_match: IfNoneMatchAny = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Attach a file to a page, in the place of one of that name."""
    wiki, body = context.open_wiki_for_attachments(), raw_body.read()
    author, message = get_author(wiki, body, author_header), body.commit_message or ""
    try:
        attached = wiki.handle.pages.add_attachment(
            wiki.path_style.to_git_path(path),
            body.filename,
            _decode_base64(body.content),
            author,
            message,
            create_only=bool(if_none_match),
        )
    except PageExists as error:
        raise PreconditionFailed(error.message, current=None, hint=error.hint) from None
    _report_attached(wiki, attached, author, message)
    return make_json_response(
        build_attachment_add_document(attached, wiki.path_style), 201 if attached.created else 200
    )


@router.delete(
    _ATTACHMENT_PATH,
    response_model=AttachmentRemoveDocument | PageDeleteDocument,
    responses=describe_error_responses(404, 409, 412),
)
def detach(
    context: RequestContextDep,
    path: PagePath,
    filename: FileName,
    _: NoQuery,
    raw_body: RawWriteBody,
    author_header: AuthorHeader = None,
) -> Response:
    """Delete a file that is attached to a page; what it held stays in the history."""
    wiki, edit = context.open_wiki(Scope.WRITE), raw_body.read()
    author, message = get_author(wiki, edit, author_header), edit.commit_message or ""

    def answer() -> Response:
        gone = wiki.handle.pages.remove_attachment(wiki.path_style.to_git_path(path), filename, author, message)
        _report_attached(wiki, gone, author, message)
        return make_json_response(build_attachment_remove_document(gone, wiki.path_style))

    return _respond_or_page(
        answer, lambda: delete_and_respond(wiki, f"{path}/attachments/{filename}", edit, None, author_header)
    )


def _respond_or_page(respond: Callable[[], Response], respond_page: Callable[[], Response]) -> Response:
    """The answer, or where there is nothing that of a page, which may be called attachments or lie below one."""
    try:
        return respond()
    except (PageNotFound, AttachmentNotFound, InvalidPage):
        with suppress(NotFound, InvalidPage):
            return respond_page()
        raise


def _make_raw_response(attachment: AttachmentResult) -> Response:
    kind = attachment.attachment.media_type
    headers = {
        "Cache-Control": PRIVATE_CACHE_CONTROL,
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(attachment.attachment.filename, safe='')}",
        "ETag": f'"{attachment.attachment.blob}"',
    }
    return Response(
        attachment.data, 200, headers, media_type=kind if kind in _INERT_MEDIA_TYPES else "application/octet-stream"
    )


def _decode_base64(content: str) -> bytes:
    try:
        return b64decode("".join(content.split()), validate=True)
    except (NotBase64, ValueError):
        raise InvalidPage("content is not base64", hint="Send the file's bytes in base64.") from None


def _report_attached(wiki: WikiSession, result: AttachmentResult, author: Author, message: str) -> None:
    wiki.report_commit(CommitEvent(ChangeKind.ATTACHED, result.path, (result.attachment.file,), author, message))
