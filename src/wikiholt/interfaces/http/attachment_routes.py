"""Routes for files attached to pages. The field names are those that otterwiki-mcp reads."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.responses import Response

from wikiholt.api.documents.page_documents import (
    AttachmentAddDocument,
    AttachmentContentDocument,
    AttachmentRemoveDocument,
    AttachmentsDocument,
    PageDeleteDocument,
    PageDocument,
    build_attachment_add_document,
    build_attachment_content_document,
    build_attachment_remove_document,
    build_attachments_document,
)
from wikiholt.api.operations.parameters import Flag, Parameters
from wikiholt.domain.page import AttachmentResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import AttachmentNotFound, InvalidPage, NotFound, PageExists, PageNotFound
from wikiholt.interfaces.http.page_routes import (
    IfNoneMatchAny,
    PagePath,
    RawWriteBody,
    delete_and_respond,
    make_page_response,
)
from wikiholt.interfaces.http.problem_details import Responses, describe_route
from wikiholt.interfaces.http.query_params import NoQuery, parse_query
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

router = APIRouter(prefix="/api/v1", tags=["attachments"])

INERT_MEDIA_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"})
"""Media types that may be sent to a browser: none in which a script can run."""
_ATTACHMENT_PATH = "/pages/{path:path}/attachments/{filename}"
_ATTACHED_RESPONSE: Responses = {201: {"model": AttachmentAddDocument, "description": "The file was created."}}
FileName = Annotated[str, Path(max_length=300, description="The name of the file.")]


class AttachFile(WriteBody):
    """A file with its content in base64."""

    filename: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
    content: str


class AttachmentParams(Parameters):
    """The form in which to return a file."""

    raw: Flag = Field(False, description="Return the bytes as a download instead of a JSON document.")


RawAttachFile = Annotated[LazyBody[AttachFile], read_body(AttachFile)]


@router.get("/pages/{path:path}/attachments", **describe_route(AttachmentsDocument | PageDocument, 404))
def list_attachments(context: RequestContextDep, path: PagePath, _: NoQuery) -> Response:
    """List the files attached to a page."""
    wiki = context.open_wiki(Scope.READ)

    def respond() -> Response:
        attachments = wiki.handle.pages.list_attachments(wiki.path_style.to_git_path(path))
        return make_json_response(build_attachments_document(attachments, wiki.path_style))

    return _respond_or_page(respond, lambda: make_page_response(wiki, f"{path}/attachments"))


@router.get(_ATTACHMENT_PATH, **describe_route(AttachmentContentDocument | PageDocument, 404, 413))
def read_attachment(
    context: RequestContextDep,
    path: PagePath,
    filename: FileName,
    params: Annotated[AttachmentParams, parse_query(AttachmentParams)],
) -> Response:
    """Read an attached file: as a document with base64 content, or (raw) as a download."""
    wiki = context.open_wiki(Scope.READ)

    def respond() -> Response:
        attachment = wiki.handle.pages.read_attachment(wiki.path_style.to_git_path(path), filename)
        if params.raw:
            return _make_raw_response(attachment)
        return make_json_response(build_attachment_content_document(attachment, wiki.path_style))

    return _respond_or_page(respond, lambda: make_page_response(wiki, f"{path}/attachments/{filename}"))


@router.post(
    "/pages/{path:path}/attachments",
    operation_id="attach_api_v1_pages__path__attachments_post",
    **describe_route(AttachmentAddDocument, 404, 409, 412, 413, others=_ATTACHED_RESPONSE),
)
def add_attachment(
    context: RequestContextDep,
    path: PagePath,
    raw_body: RawAttachFile,
    _: NoQuery,
    if_none_match: IfNoneMatchAny = None,
    author_header: AuthorHeader = None,
) -> Response:
    """Attach a file to a page, replacing a file of the same name."""
    wiki, body = context.open_wiki_for_attachments(), raw_body.read()
    author, message = get_author(wiki, body, author_header), body.commit_message or ""
    try:
        attached = wiki.handle.pages.add_attachment(
            wiki.path_style.to_git_path(path),
            body.filename,
            decode_base64(body.content),
            author,
            message,
            create_only=bool(if_none_match),
        )
    except PageExists as error:
        raise PreconditionFailed(error.message, current=None, hint=error.hint) from None
    wiki.report_write(attached, author, message)
    return make_json_response(
        build_attachment_add_document(attached, wiki.path_style), 201 if attached.created else 200
    )


@router.delete(
    _ATTACHMENT_PATH,
    operation_id="detach_api_v1_pages__path__attachments__filename__delete",
    **describe_route(AttachmentRemoveDocument | PageDeleteDocument, 404, 409, 412),
)
def delete_attachment(
    context: RequestContextDep,
    path: PagePath,
    filename: FileName,
    _: NoQuery,
    raw_body: RawWriteBody,
    author_header: AuthorHeader = None,
) -> Response:
    """Delete an attached file; its content stays in the git history."""
    wiki, body = context.open_wiki(Scope.WRITE), raw_body.read()
    author, message = get_author(wiki, body, author_header), body.commit_message or ""

    def respond() -> Response:
        removed = wiki.handle.pages.remove_attachment(wiki.path_style.to_git_path(path), filename, author, message)
        wiki.report_write(removed, author, message)
        return make_json_response(build_attachment_remove_document(removed, wiki.path_style))

    return _respond_or_page(
        respond, lambda: delete_and_respond(wiki, f"{path}/attachments/{filename}", body, None, author_header)
    )


def _respond_or_page(respond: Callable[[], Response], respond_page: Callable[[], Response]) -> Response:
    """Call `respond`; if there is no such attachment, try the page whose path has the same URL."""
    try:
        return respond()
    except (PageNotFound, AttachmentNotFound, InvalidPage):
        with suppress(NotFound, InvalidPage):
            return respond_page()
        raise


def _make_raw_response(attachment: AttachmentResult) -> Response:
    media_type = attachment.attachment.mime_type
    headers = {
        "Cache-Control": PRIVATE_CACHE_CONTROL,
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(attachment.attachment.filename, safe='')}",
        "ETag": f'"{attachment.attachment.blob}"',
    }
    return Response(
        attachment.data,
        200,
        headers,
        media_type=media_type if media_type in INERT_MEDIA_TYPES else "application/octet-stream",
    )


def decode_base64(content: str) -> bytes:
    """Decode the content of a file. Raises InvalidPage."""
    try:
        return b64decode("".join(content.split()), validate=True)
    except (NotBase64, ValueError):
        raise InvalidPage("content is not base64", hint="Encode the content of the file in base64.") from None
