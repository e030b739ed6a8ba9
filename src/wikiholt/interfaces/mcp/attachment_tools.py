"""The tools for files attached to pages."""

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from wikiholt.api.documents.common import build_document
from wikiholt.api.documents.page_documents import (
    AttachmentAddDocument,
    AttachmentContentDocument,
    AttachmentRemoveDocument,
    build_attachment_add_document,
    build_attachment_content_document,
    build_attachment_remove_document,
)
from wikiholt.api.operations.attachments import decode_base64
from wikiholt.errors import InvalidPage
from wikiholt.interfaces.mcp.mcp_tool import tool, write_tool
from wikiholt.interfaces.mcp.resources import format_attachment_uri
from wikiholt.interfaces.mcp.text_output import (
    build_list_continuation,
    fit_to_budget,
    take_fitting,
)
from wikiholt.interfaces.mcp.tool_schemas import (
    TEXT_PATTERN,
    BudgetedArguments,
    Continuation,
    MessageArgument,
    PagePathArgument,
    ToolArguments,
)
from wikiholt.interfaces.mcp.write_tools import resolve_page_and_author
from wikiholt.wikis.session import WikiSession

_BASE64_CHARS_PER_TOKEN = 2
FileNameArgument = Annotated[str, Field(min_length=1, max_length=255, pattern=TEXT_PATTERN)]


class ListAttachmentsArguments(BudgetedArguments):
    path: PagePathArgument
    offset: int = Field(0, ge=0, description="Number of files to skip.")


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


def _format_list(result: ListAttachmentsResult) -> str:
    files = result["attachments"]
    lines = [f"{file['filename']} ({file['mime_type']}, {file['size']} bytes): {file['uri']}" for file in files]
    if result["continuation"] is not None:
        lines.append(result["continuation"]["message"])
    return "\n".join(lines) or "The page has no attachments."


@tool(
    "List attachments",
    "List the files attached to a page, with the URIs of their resources.",
    _format_list,
)
def list_attachments(wiki: WikiSession, params: ListAttachmentsArguments, budget: int) -> ListAttachmentsResult:
    found = wiki.handle.pages.list_attachments(wiki.path_style.to_git_path(params.path))
    path = wiki.path_style.to_display_path(found.path)
    entries = [
        build_document(AttachmentEntry, file, uri=format_attachment_uri(path, file.filename)) for file in found.files
    ]

    def build(share: int) -> ListAttachmentsResult:
        shown = take_fitting(entries[params.offset :], share)
        done = params.offset + len(shown)
        continuation = build_list_continuation("list_attachments", params, done, len(entries) - done, "entries")
        return {"attachments": shown, "total": len(entries), "continuation": continuation}

    return fit_to_budget(build, _format_list, budget)


class AttachmentArguments(BudgetedArguments):
    """Arguments of download_attachment."""

    path: PagePathArgument
    filename: FileNameArgument


@tool(
    "Read an attachment",
    "Get a file attached to a page, in base64.",
    "{filename} ({mime_type}, {size} bytes), in base64:\n{content}".format_map,
)
def download_attachment(wiki: WikiSession, params: AttachmentArguments, budget: int) -> AttachmentContentDocument:
    attachment = wiki.handle.pages.read_attachment(wiki.path_style.to_git_path(params.path), params.filename)
    document = build_attachment_content_document(attachment, wiki.path_style)
    if len(document["content"]) > budget * _BASE64_CHARS_PER_TOKEN:
        uri = format_attachment_uri(params.path, params.filename)
        raise InvalidPage(f"The file has {document['size']:,} bytes: read the resource {uri} instead.")
    return document


class DeleteAttachmentArguments(ToolArguments):
    path: PagePathArgument
    filename: FileNameArgument
    commit_message: MessageArgument = ""


class UploadAttachmentArguments(DeleteAttachmentArguments):
    content: str = Field(description="The content of the file in base64.")


def _format_added(result: AttachmentAddDocument) -> str:
    verb = "Attached" if result["created"] else "Replaced"
    return f"{verb} {result['filename']} of {result['path']}; revision {result['revision']}."


@write_tool(
    "Attach a file",
    "Attach a file to a page, or replace one of the same name, as one commit.",
    _format_added,
    destructive=True,
)
def upload_attachment(wiki: WikiSession, params: UploadAttachmentArguments, _: int) -> AttachmentAddDocument:
    data = decode_base64(params.content)
    path, author = resolve_page_and_author(wiki, params.path)
    added = wiki.handle.pages.add_attachment(path, params.filename, data, author, params.commit_message)
    wiki.report_write(added, author, params.commit_message)
    return build_attachment_add_document(added, wiki.path_style)


@write_tool(
    "Delete an attachment",
    "Delete a file attached to a page; its content stays in the git history.",
    "Deleted {filename} of {path}; revision {revision}.".format_map,
    destructive=True,
    idempotent=False,
)
def delete_attachment(wiki: WikiSession, params: DeleteAttachmentArguments, _: int) -> AttachmentRemoveDocument:
    path, author = resolve_page_and_author(wiki, params.path)
    removed = wiki.handle.pages.remove_attachment(path, params.filename, author, params.commit_message)
    wiki.report_write(removed, author, params.commit_message)
    return build_attachment_remove_document(removed, wiki.path_style)
