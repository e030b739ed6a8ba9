"""Files attached to pages. The field names are those that otterwiki-mcp reads."""

from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Annotated, ClassVar

from pydantic import Field

from wikiholt.api.documents.common import build_document, build_documents
from wikiholt.api.documents.page_documents import (
    AttachmentAddDocument,
    AttachmentContentDocument,
    AttachmentDocument,
    AttachmentRemoveDocument,
    AttachmentsDocument,
)
from wikiholt.api.operations.operation import OperationTable
from wikiholt.api.operations.page_writes import CommitParameters, get_author
from wikiholt.api.operations.pages import PageParameters
from wikiholt.api.operations.parameters import Flag
from wikiholt.domain.page import AttachmentResult
from wikiholt.domain.wiki import Scope
from wikiholt.errors import InvalidPage
from wikiholt.wikis.session import WikiSession

FileName = Annotated[str, Field(max_length=300, description="The name of the file.", title="Filename")]


class ReadAttachment(PageParameters):
    """The file, and the form in which to return it."""

    filename: FileName
    raw: Flag = Field(False, description="Return the bytes as a download instead of a JSON document.")


class AddAttachment(CommitParameters):
    """A file with its content in base64. With `create_only`, a file of the same name is not replaced."""

    filename: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^\x00]+$")]
    content: str
    create_only: bool = False


class RemoveAttachment(CommitParameters):
    """The fields of every commit."""

    is_optional: ClassVar[bool] = True

    filename: FileName


ATTACHMENT_OPERATIONS = OperationTable("attachments")


@ATTACHMENT_OPERATIONS.add("GET /pages/{path}/attachments", errors=(404,), page_instead="read_page")
def list_attachments(wiki: WikiSession, parameters: PageParameters) -> AttachmentsDocument:
    """List the files attached to a page."""
    attachments = wiki.handle.pages.list_attachments(wiki.path_style.to_git_path(parameters.path))
    files = build_documents(AttachmentDocument, attachments.files)
    return build_document(AttachmentsDocument, attachments, wiki.path_style, attachments=files, total=len(files))


@ATTACHMENT_OPERATIONS.add("GET /pages/{path}/attachments/{filename}", errors=(404, 413), page_instead="read_page")
def read_attachment(wiki: WikiSession, parameters: ReadAttachment) -> AttachmentContentDocument:
    """Read an attached file: as a document with base64 content, or (raw) as a download."""
    found = find_attachment(wiki, parameters)
    path, content = wiki.path_style.to_display_path(found.path), b64encode(found.data).decode("ascii")
    return build_document(AttachmentContentDocument, found.attachment, path=path, content=content)


def find_attachment(wiki: WikiSession, parameters: ReadAttachment) -> AttachmentResult:
    path = wiki.path_style.to_git_path(parameters.path)
    return wiki.handle.pages.read_attachment(path, parameters.filename)


@ATTACHMENT_OPERATIONS.add(
    "POST /pages/{path}/attachments",
    "attach",
    scope=Scope.WRITE,
    errors=(404, 409, 412, 413),
    other_results={201: (AttachmentAddDocument, "The file was created.")},
    choose_status=lambda document: 201 if document["created"] else 200,
    attaches=True,
)
def add_attachment(wiki: WikiSession, parameters: AddAttachment) -> AttachmentAddDocument:
    """Attach a file to a page, replacing a file of the same name."""
    path, author = wiki.path_style.to_git_path(parameters.path), get_author(wiki, parameters.author)
    data, message = decode_base64(parameters.content), parameters.message
    attached = wiki.handle.pages.add_attachment(
        path, parameters.filename, data, author, message, create_only=parameters.create_only
    )
    wiki.report_write(attached, author, message)
    file = attached.attachment
    return build_document(
        AttachmentAddDocument,
        attached,
        wiki.path_style,
        filename=file.filename,
        size=file.size,
        mime_type=file.mime_type,
    )


@ATTACHMENT_OPERATIONS.add(
    "DELETE /pages/{path}/attachments/{filename}",
    "detach",
    scope=Scope.WRITE,
    errors=(404, 409, 412),
    page_instead="delete_page",
)
def delete_attachment(wiki: WikiSession, parameters: RemoveAttachment) -> AttachmentRemoveDocument:
    """Delete an attached file; its content stays in the git history."""
    path, author = wiki.path_style.to_git_path(parameters.path), get_author(wiki, parameters.author)
    removed = wiki.handle.pages.remove_attachment(path, parameters.filename, author, parameters.message)
    wiki.report_write(removed, author, parameters.message)
    return build_document(
        AttachmentRemoveDocument, removed, wiki.path_style, deleted=True, filename=removed.attachment.filename
    )


def decode_base64(content: str) -> bytes:
    """Decode the content of a file. Raises InvalidPage."""
    try:
        return b64decode("".join(content.split()), validate=True)
    except (NotBase64, ValueError):
        raise InvalidPage("content is not base64", hint="Encode the content of the file in base64.") from None
