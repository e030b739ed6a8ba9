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

from wikiholt.errors import AttachmentNotFound, InvalidPage, NotFound, PageExists, PageNotFound
from wikiholt.model import Attached, Author, Scope
from wikiholt.surfaces.documents.attachments import (
    AttachedDocument,
    AttachmentContentDocument,
    AttachmentsDocument,
    DetachedDocument,
    attached_document,
    attachment_content_document,
    attachments_document,
    detached_document,
)
from wikiholt.surfaces.documents.pages import DeletedDocument, PageDocument
from wikiholt.surfaces.http.admission import Deed, Wrote
from wikiholt.surfaces.http.bodies import PRIVATE, json_response
from wikiholt.surfaces.http.edits import ByHeader, Edit, PreconditionFailed, author_of
from wikiholt.surfaces.http.pages import PagePath, page_response
from wikiholt.surfaces.http.parameters import Flag, Nothing
from wikiholt.surfaces.http.queries import taken
from wikiholt.surfaces.http.responses import Responses, declared
from wikiholt.surfaces.http.sending import Sent, sent
from wikiholt.surfaces.http.visits import OpenWiki, Who
from wikiholt.surfaces.http.writing import EditBody, NoQuery, OnlyNew, deleted_response

router = APIRouter(prefix="/api/v1", tags=["attachments"])

_INERT = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf", "text/plain"})
"""What a browser may be told that a file is: nothing in which a script could run."""
_ONE = "/pages/{path:path}/attachments/{filename}"
_CREATED: Responses = {201: {"model": AttachedDocument, "description": "The file is new."}}
FileName = Annotated[str, Path(max_length=300, description="The file's name.")]


class AttachFile(Edit):
    """A file, its bytes in base64."""

    filename: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
    content: str


class Form(Nothing):
    """In which form a file is wanted."""

    raw: Flag = Field(False, description="The bytes themselves, to be saved, instead of a document.")


AttachBody = Annotated[Sent[AttachFile], sent(AttachFile)]


@router.get(
    "/pages/{path:path}/attachments", response_model=AttachmentsDocument | PageDocument, responses=declared(404)
)
def list_attachments(who: Who, path: PagePath, _: NoQuery) -> Response:
    """List the files attached to a page."""
    wiki = who.wiki(Scope.READ)

    def answer() -> Response:
        found = wiki.handle.contents.attachments(wiki.names.meant(path))
        return json_response(attachments_document(found, wiki.names))

    return _or_page(answer, lambda: page_response(wiki, f"{path}/attachments"))


@router.get(_ONE, response_model=AttachmentContentDocument | PageDocument, responses=declared(404, 413))
def read_attachment(who: Who, path: PagePath, filename: FileName, asked: Annotated[Form, taken(Form)]) -> Response:
    """Read a file that is attached to a page: with its bytes in base64, or (raw) the bytes to be saved."""
    wiki = who.wiki(Scope.READ)

    def answer() -> Response:
        read = wiki.handle.contents.attachment(wiki.names.meant(path), filename)
        return _raw(read) if asked.raw else json_response(attachment_content_document(read, wiki.names))

    return _or_page(answer, lambda: page_response(wiki, f"{path}/attachments/{filename}"))


@router.post(
    "/pages/{path:path}/attachments",
    response_model=AttachedDocument,
    responses=declared(404, 409, 412, 413) | _CREATED,
)
def attach(
    who: Who, path: PagePath, sent_body: AttachBody, _: NoQuery, only_new: OnlyNew = None, by: ByHeader = None
) -> Response:
    """Attach a file to a page, in the place of one of that name."""
    wiki, body = who.attaching(), sent_body.read()
    author, message = author_of(wiki, body, by), body.commit_message or ""
    try:
        attached = wiki.handle.contents.attach(
            wiki.names.meant(path), body.filename, _bytes(body.content), author, message, create_only=bool(only_new)
        )
    except PageExists as error:
        raise PreconditionFailed(error.message, current=None, hint=error.hint) from None
    _tell(wiki, attached, author, message)
    return json_response(attached_document(attached, wiki.names), 201 if attached.created else 200)


@router.delete(_ONE, response_model=DetachedDocument | DeletedDocument, responses=declared(404, 409, 412))
def detach(
    who: Who, path: PagePath, filename: FileName, _: NoQuery, sent_body: EditBody, by: ByHeader = None
) -> Response:
    """Delete a file that is attached to a page; what it held stays in the history."""
    wiki, edit = who.wiki(Scope.WRITE), sent_body.read()
    author, message = author_of(wiki, edit, by), edit.commit_message or ""

    def answer() -> Response:
        gone = wiki.handle.contents.detach(wiki.names.meant(path), filename, author, message)
        _tell(wiki, gone, author, message)
        return json_response(detached_document(gone, wiki.names))

    return _or_page(answer, lambda: deleted_response(wiki, f"{path}/attachments/{filename}", edit, None, by))


def _or_page(answer: Callable[[], Response], page: Callable[[], Response]) -> Response:
    """The answer, or where there is nothing that of a page, which may be called attachments or lie below one."""
    try:
        return answer()
    except (PageNotFound, AttachmentNotFound, InvalidPage):
        with suppress(NotFound, InvalidPage):
            return page()
        raise


def _raw(read: Attached) -> Response:
    kind = read.attachment.media_type
    headers = {
        "Cache-Control": PRIVATE,
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(read.attachment.filename, safe='')}",
        "ETag": f'"{read.attachment.blob}"',
    }
    return Response(read.data, 200, headers, media_type=kind if kind in _INERT else "application/octet-stream")


def _bytes(content: str) -> bytes:
    try:
        return b64decode("".join(content.split()), validate=True)
    except (NotBase64, ValueError):
        raise InvalidPage("content is not base64", hint="Send the file's bytes in base64.") from None


def _tell(wiki: OpenWiki, attached: Attached, author: Author, message: str) -> None:
    wiki.wrote(Wrote(Deed.ATTACHED, attached.path, (attached.attachment.file,), author, message))
