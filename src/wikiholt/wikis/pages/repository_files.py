"""Reads images and other files of a wiki, which pages show and link to."""

from dataclasses import dataclass

from wikiholt.domain.git import AttachedFile
from wikiholt.domain.protocols import Source
from wikiholt.errors import AttachmentNotFound, InputTooLarge, PageNotFound
from wikiholt.text.links import LinkResolution, is_attachment
from wikiholt.wikis.pages.page_attachments import PageAttachments, guess_media_type
from wikiholt.wikis.pages.page_locator import PageLocator, validate_path


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file at HEAD; its media type is guessed from its name."""

    name: str
    media_type: str
    blob: str
    data: bytes


class RepositoryFiles:
    """Reads the media files of one wiki, and the files attached to its pages. Other files are not shown."""

    def __init__(self, source: Source, locator: PageLocator, attachments: PageAttachments, max_bytes: int) -> None:
        self._source = source
        self._locator = locator
        self._attachments = attachments
        self._max_bytes = max_bytes

    def read(self, path: str) -> RepositoryFile:
        """The file with this path at HEAD; in a dialect that links by name, or else the file with this name.

        Raises AttachmentNotFound, InputTooLarge over the size limit of pages, and InvalidPage for an invalid path.
        """
        path = validate_path(path)
        if any(part.startswith(".") for part in path.split("/")):
            raise _build_not_found_error(path)
        return self._read_media(path) if is_attachment(path, True) else self._read_attachment(path)

    def _read_attachment(self, path: str) -> RepositoryFile:
        folder, _, name = path.rpartition("/")
        try:
            result = self._attachments.read(folder, name) if folder else None
        except PageNotFound:
            result = None
        if result is None or result.data is None:
            raise _build_not_found_error(path)
        return RepositoryFile(name, result.attachment.mime_type, result.attachment.blob, result.data)

    def _read_media(self, path: str) -> RepositoryFile:
        head = self._locator.get_head()
        found = self._find(path, head) if head is not None else None
        if found is None:
            raise _build_not_found_error(path)
        if found.size > self._max_bytes:
            raise InputTooLarge(
                f"the file has {found.size:,} bytes; the limit is {self._max_bytes:,}", hint="read it with git instead"
            )
        (blob,) = self._source.read_blobs([found.blob], self._max_bytes)
        if blob.data is None:
            raise AttachmentNotFound("this file cannot be read", hint="check the repository with `git fsck`")
        name = path.rpartition("/")[2]
        return RepositoryFile(name, guess_media_type(name), found.blob, blob.data)

    def _find(self, path: str, head: str) -> AttachedFile | None:
        folder, _, name = path.rpartition("/")
        found = self._source.list_attached_files(folder, head).get(name)
        if found is not None or self._locator.get_pipeline().dialect.resolution is not LinkResolution.BY_NAME:
            return found
        # Notes name a file without its folder; of several files the one nearest to the root is meant.
        files = (file for file in self._source.list_other_files(head) if file.rpartition("/")[2] == name)
        nearest = min(files, key=lambda file: (file.count("/"), file), default=None)
        if nearest is None or any(part.startswith(".") for part in nearest.split("/")):
            return None
        return self._source.list_attached_files(nearest.rpartition("/")[0], head).get(name)


def _build_not_found_error(path: str) -> AttachmentNotFound:
    return AttachmentNotFound(f"there is no file {path[:200]!r}", hint="check the link on the page")
