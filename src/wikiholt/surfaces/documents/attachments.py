"""Files attached to pages, as documents. Names are those that otterwiki-mcp reads."""

from base64 import b64encode

from typing_extensions import TypedDict

from wikiholt.model import Attached, Attachment, Attachments
from wikiholt.surfaces.documents.moments import moment
from wikiholt.surfaces.documents.names import AS_STORED, Names


class AttachmentDocument(TypedDict):
    """A file attached to a page; `size` counts bytes."""

    filename: str
    size: int
    mime_type: str
    last_modified: str | None


class AttachmentsDocument(TypedDict):
    """The files attached to a page, by name."""

    path: str
    attachments: list[AttachmentDocument]
    total: int


class AttachmentContentDocument(TypedDict):
    """A file attached to a page, with its bytes in base64."""

    filename: str
    path: str
    content: str
    size: int
    mime_type: str


class AttachedDocument(TypedDict):
    """A file that is attached to a page since this revision."""

    filename: str
    path: str
    size: int
    mime_type: str
    revision: str
    created: bool


class DetachedDocument(TypedDict):
    """A file that is gone since this revision."""

    deleted: bool
    filename: str
    path: str
    revision: str


def attachments_document(found: Attachments, names: Names = AS_STORED) -> AttachmentsDocument:
    return {
        "path": names.shown(found.path),
        "attachments": [_listed(attachment) for attachment in found.files],
        "total": len(found.files),
    }


def _listed(attachment: Attachment) -> AttachmentDocument:
    return {
        "filename": attachment.filename,
        "size": attachment.size,
        "mime_type": attachment.media_type,
        "last_modified": moment(attachment.last_modified),
    }


def attachment_content_document(read: Attached, names: Names = AS_STORED) -> AttachmentContentDocument:
    return {
        "filename": read.attachment.filename,
        "path": names.shown(read.path),
        "content": b64encode(read.data).decode("ascii"),
        "size": read.attachment.size,
        "mime_type": read.attachment.media_type,
    }


def attached_document(attached: Attached, names: Names = AS_STORED) -> AttachedDocument:
    return {
        "filename": attached.attachment.filename,
        "path": names.shown(attached.path),
        "size": attached.attachment.size,
        "mime_type": attached.attachment.media_type,
        "revision": attached.revision,
        "created": attached.created,
    }


def detached_document(gone: Attached, names: Names = AS_STORED) -> DetachedDocument:
    return {
        "deleted": True,
        "filename": gone.attachment.filename,
        "path": names.shown(gone.path),
        "revision": gone.revision,
    }
