"""The tools for files attached to pages. All but the list exist only under the names of otterwiki-mcp."""

from base64 import b64decode
from binascii import Error as NotBase64

from typing_extensions import TypedDict

from wikiholt.errors import InvalidPage
from wikiholt.interfaces.http.write_request import WriteBody, get_author
from wikiholt.interfaces.mcp.page_tools import cut_lists
from wikiholt.interfaces.mcp.resources import format_attachment_uri
from wikiholt.interfaces.mcp.result_schemas import Continuation
from wikiholt.interfaces.mcp.text_output import fit_to_budget
from wikiholt.interfaces.mcp.tool_schemas import (
    AttachmentArguments,
    DeleteAttachmentArguments,
    ListAttachmentsArguments,
    UploadAttachmentArguments,
)
from wikiholt.interfaces.schemas.page_schemas import (
    AttachmentAddDocument,
    AttachmentContentDocument,
    AttachmentRemoveDocument,
    build_attachment_add_document,
    build_attachment_content_document,
    build_attachment_remove_document,
)
from wikiholt.wikis.session import WikiSession

_BASE64_CHARS_PER_TOKEN = 2


class AttachmentEntry(TypedDict):
    """A file; `uri` is its resource, `size` is in bytes."""

    filename: str
    size: int
    mime_type: str
    uri: str


class ListAttachmentsResult(TypedDict):
    """The files attached to a page."""

    attachments: list[AttachmentEntry]
    total: int
    continuation: Continuation | None


def list_attachments(wiki: WikiSession, params: ListAttachmentsArguments, budget: int) -> ListAttachmentsResult:
    found = wiki.handle.pages.list_attachments(wiki.path_style.to_git_path(params.path))
    path = wiki.path_style.to_display_path(found.path)
    entries: list[AttachmentEntry] = [
        {
            "filename": file.filename,
            "size": file.size,
            "mime_type": file.mime_type,
            "uri": format_attachment_uri(path, file.filename),
        }
        for file in found.files
    ]
    arguments = params.model_dump(exclude_defaults=True)

    def build(share: int) -> ListAttachmentsResult:
        (shown,), continuation = cut_lists([entries], share, "list_attachments", arguments, params)
        return {"attachments": shown, "total": len(entries), "continuation": continuation}

    return fit_to_budget(build, format_attachments, budget)


def format_attachments(result: ListAttachmentsResult) -> str:
    files = result["attachments"]
    lines = [f"{file['filename']} ({file['mime_type']}, {file['size']} bytes): {file['uri']}" for file in files]
    if result["continuation"] is not None:
        lines.append(result["continuation"]["message"])
    return "\n".join(lines) or "The page has no attachments."


def download_attachment(wiki: WikiSession, params: AttachmentArguments, budget: int) -> AttachmentContentDocument:
    attachment = wiki.handle.pages.read_attachment(wiki.path_style.to_git_path(params.path), params.filename)
    document = build_attachment_content_document(attachment, wiki.path_style)
    if len(document["content"]) > budget * _BASE64_CHARS_PER_TOKEN:
        uri = format_attachment_uri(params.path, params.filename)
        raise InvalidPage(f"The file has {document['size']:,} bytes: read the resource {uri} instead.")
    return document


def format_attachment(result: AttachmentContentDocument) -> str:
    return f"{result['filename']} ({result['mime_type']}, {result['size']} bytes), in base64:\n{result['content']}"


def upload_attachment(wiki: WikiSession, params: UploadAttachmentArguments, _: int) -> AttachmentAddDocument:
    try:
        data = b64decode("".join(params.content.split()), validate=True)
    except (NotBase64, ValueError):
        raise InvalidPage("content is not base64.", hint="Encode the content of the file in base64.") from None
    path, author = wiki.path_style.to_git_path(params.path), get_author(wiki, WriteBody(), None)
    added = wiki.handle.pages.add_attachment(path, params.filename, data, author, params.commit_message)
    wiki.report_write(added, author, params.commit_message)
    return build_attachment_add_document(added, wiki.path_style)


def format_added(result: AttachmentAddDocument) -> str:
    verb = "Attached" if result["created"] else "Replaced"
    return f"{verb} {result['filename']} of {result['path']}; revision {result['revision']}."


def delete_attachment(wiki: WikiSession, params: DeleteAttachmentArguments, _: int) -> AttachmentRemoveDocument:
    path, author = wiki.path_style.to_git_path(params.path), get_author(wiki, WriteBody(), None)
    removed = wiki.handle.pages.remove_attachment(path, params.filename, author, params.commit_message)
    wiki.report_write(removed, author, params.commit_message)
    return build_attachment_remove_document(removed, wiki.path_style)


def format_removed(result: AttachmentRemoveDocument) -> str:
    return f"Deleted {result['filename']} of {result['path']}; revision {result['revision']}."
