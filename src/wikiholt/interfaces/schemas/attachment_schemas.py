"""JSON documents of files attached to pages. The field names are those that otterwiki-mcp reads."""

from base64 import b64encode

from typing_extensions import TypedDict

from wikiholt.domain.page import Attachment, AttachmentList, AttachmentResult
from wikiholt.interfaces.schemas.common import format_date
from wikiholt.wikis.session import STORED_PATHS, PathStyle


class AttachmentDocument(TypedDict):
    """A file attached to a page; `size` is in bytes."""

    filename: str
    size: int
    mime_type: str
    last_modified: str | None


class AttachmentsDocument(TypedDict):
    """The files attached to a page, sorted by name."""

    path: str
    attachments: list[AttachmentDocument]
    total: int


class AttachmentContentDocument(TypedDict):
    """A file attached to a page, with its content in base64."""

    filename: str
    path: str
    content: str
    size: int
    mime_type: str


class AttachmentAddDocument(TypedDict):
    """A file that this revision attached to a page."""

    filename: str
    path: str
    size: int
    mime_type: str
    revision: str
    created: bool


class AttachmentRemoveDocument(TypedDict):
    """A file that this revision removed from a page."""

    deleted: bool
    filename: str
    path: str
    revision: str


def build_attachments_document(
    attachments: AttachmentList, path_style: PathStyle = STORED_PATHS
) -> AttachmentsDocument:
    return {
        "path": path_style.to_display_path(attachments.path),
        "attachments": [_build_attachment_document(attachment) for attachment in attachments.files],
        "total": len(attachments.files),
    }


def _build_attachment_document(attachment: Attachment) -> AttachmentDocument:
    return {
        "filename": attachment.filename,
        "size": attachment.size,
        "mime_type": attachment.media_type,
        "last_modified": format_date(attachment.last_modified),
    }


def build_attachment_content_document(
    attachment: AttachmentResult, path_style: PathStyle = STORED_PATHS
) -> AttachmentContentDocument:
    return {
        "filename": attachment.attachment.filename,
        "path": path_style.to_display_path(attachment.path),
        "content": b64encode(attachment.data).decode("ascii"),
        "size": attachment.attachment.size,
        "mime_type": attachment.attachment.media_type,
    }


def build_attachment_add_document(
    result: AttachmentResult, path_style: PathStyle = STORED_PATHS
) -> AttachmentAddDocument:
    return {
        "filename": result.attachment.filename,
        "path": path_style.to_display_path(result.path),
        "size": result.attachment.size,
        "mime_type": result.attachment.media_type,
        "revision": result.revision,
        "created": result.created,
    }


def build_attachment_remove_document(
    result: AttachmentResult, path_style: PathStyle = STORED_PATHS
) -> AttachmentRemoveDocument:
    return {
        "deleted": True,
        "filename": result.attachment.filename,
        "path": path_style.to_display_path(result.path),
        "revision": result.revision,
    }
