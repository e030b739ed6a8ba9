"""Files of a wiki that are not pages: attachments, in the directory named after the page, and media that pages show."""

import mimetypes
from dataclasses import dataclass
from datetime import datetime
from functools import cache

from wikiholt.domain.git import AttachedFile, Author, FileEdit
from wikiholt.domain.page import Attachment, AttachmentList, AttachmentResult
from wikiholt.errors import AttachmentNotFound, InputTooLarge, InvalidPage, PageExists, PageNotFound
from wikiholt.text.links import LinkResolution, is_attachment
from wikiholt.text.page_names import is_code, is_document
from wikiholt.wikis.pages.page_reader import PageFile, validate_path
from wikiholt.wikis.pages.page_writer import PageWriter

_DEFAULT_MEDIA_TYPE = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    """A file at HEAD; its media type is guessed from its name."""

    name: str
    media_type: str
    blob: str
    data: bytes


class PageAttachments(PageWriter):
    """Lists, reads and writes the attachments of one wiki's pages, and reads its media. Other files are not shown."""

    def list_attachments(self, path: str) -> AttachmentList:
        """The files attached to the page: those in the directory of its name that are not pages."""
        head = self._read_head()
        page_file = self._get_page(path, head)
        assert head is not None, "there is a page, so there is a commit"
        directory = _get_directory(page_file)
        attached = self._source.list_attached_files(directory, head)
        files = {name: f"{directory}/{name}" for name in sorted(attached)}
        dates = self._source.get_change_dates(list(files.values()), head, None) if files else {}
        return AttachmentList(
            page_file.path,
            tuple(_to_attachment(file, attached[name], dates.get(file)) for name, file in files.items()),
        )

    def read_attachment(self, path: str, filename: str) -> AttachmentResult:
        """An attachment with its content. Raises AttachmentNotFound, and InputTooLarge over the page size limit."""
        head, page_file, attached = self._find_attached(path, filename)
        if attached is None:
            raise _build_not_found_error(filename)
        self._require_readable_size(attached)
        (blob,) = self._source.read_blobs([attached.blob], self._pipeline.max_bytes)
        if blob.data is None:
            raise InvalidPage(
                "this file cannot be read", hint="check its permissions, or the repository with `git fsck`"
            )
        file = f"{_get_directory(page_file)}/{filename}"
        return AttachmentResult(page_file.path, _to_attachment(file, attached), head, data=blob.data)

    def add_attachment(
        self, path: str, filename: str, data: bytes, author: Author, message: str = "", *, create_only: bool = False
    ) -> AttachmentResult:
        """Attach a file to the page, replacing one with the same name. Raises PageExists if `create_only`."""
        self._check_attachment_size(data)

        def attempt() -> AttachmentResult:
            _, page_file, attached = self._find_attached(path, filename)
            if attached is not None and create_only:
                raise PageExists("an attachment with this name already exists", hint="choose another name")
            file = f"{_get_directory(page_file)}/{filename}"
            edit = FileEdit(file, data, attached.blob if attached else None, is_attachment=True)
            default = (
                f"Replace {filename} of {page_file.path}" if attached else f"Attach {filename} to {page_file.path}"
            )
            revision = self._commit([edit], author, message or default)
            written = self._source.list_attached_files(_get_directory(page_file), revision)[filename]
            return AttachmentResult(page_file.path, _to_attachment(file, written), revision, created=attached is None)

        return self._retry(attempt)

    def remove_attachment(self, path: str, filename: str, author: Author, message: str = "") -> AttachmentResult:
        """Delete an attachment of the page. Raises AttachmentNotFound."""

        def attempt() -> AttachmentResult:
            _, page_file, attached = self._find_attached(path, filename)
            if attached is None:
                raise _build_not_found_error(filename)
            file = f"{_get_directory(page_file)}/{filename}"
            edit = FileEdit(file, None, attached.blob, is_attachment=True)
            revision = self._commit([edit], author, message or f"Delete {filename} of {page_file.path}")
            return AttachmentResult(page_file.path, _to_attachment(file, attached), revision)

        return self._retry(attempt)

    def _find_attached(self, path: str, filename: str) -> tuple[str, PageFile, AttachedFile | None]:
        """HEAD, the page, and the file with this name that is attached to it."""
        head = self._read_head()
        page_file = self._get_page(path, head)
        if not filename or "/" in filename:
            raise InvalidPage("this is not a file name", hint="use a name without directories, such as report.pdf")
        assert head is not None, "there is a page, so there is a commit"
        return head, page_file, self._source.list_attached_files(_get_directory(page_file), head).get(filename)

    def _require_readable_size(self, file: AttachedFile) -> None:
        if file.size > self._pipeline.max_bytes:
            raise InputTooLarge(
                f"the file has {file.size:,} bytes; the limit is {self._pipeline.max_bytes:,}",
                hint="read it with git instead",
            )

    # Files by their path in the repository

    def read_file(self, path: str) -> RepositoryFile:
        """The file with this path at HEAD; in a dialect that links by name, or else the file with this name.

        Raises AttachmentNotFound, InputTooLarge over the size limit of pages, and InvalidPage for an invalid path.
        """
        path = validate_path(path)
        if any(part.startswith(".") for part in path.split("/")):
            raise _build_no_file_error(path)
        is_media = is_attachment(path, True) or (is_document(path) and (not is_code(path) or self._is_page(path)))
        return self._read_media(path) if is_media else self._read_attached(path)

    def _is_page(self, file: str) -> bool:
        head = self._read_head()
        return head is not None and self._source.find_file(file, head) is not None

    def _read_attached(self, path: str) -> RepositoryFile:
        folder, _, name = path.rpartition("/")
        try:
            result = self.read_attachment(folder, name) if folder else None
        except PageNotFound:
            result = None
        if result is None or result.data is None:
            raise _build_no_file_error(path)
        return RepositoryFile(name, result.attachment.mime_type, result.attachment.blob, result.data)

    def _read_media(self, path: str) -> RepositoryFile:
        head = self._read_head()
        found = self._find_media(path, head) if head is not None else None
        if found is None:
            raise _build_no_file_error(path)
        self._require_readable_size(found)
        (blob,) = self._source.read_blobs([found.blob], self._pipeline.max_bytes)
        if blob.data is None:
            raise AttachmentNotFound("this file cannot be read", hint="check the repository with `git fsck`")
        name = path.rpartition("/")[2]
        return RepositoryFile(name, guess_media_type(name), found.blob, blob.data)

    def _find_media(self, path: str, head: str) -> AttachedFile | None:
        folder, _, name = path.rpartition("/")
        found = self._source.list_attached_files(folder, head).get(name)
        if found is not None or self.get_pipeline().dialect.resolution is not LinkResolution.BY_NAME:
            return found
        # Notes name a file without its folder; of several files the one nearest to the root is meant.
        files = (file for file in self._source.list_other_files(head) if file.rpartition("/")[2] == name)
        nearest = min(files, key=lambda file: (file.count("/"), file), default=None)
        if nearest is None or any(part.startswith(".") for part in nearest.split("/")):
            return None
        return self._source.list_attached_files(nearest.rpartition("/")[0], head).get(name)


def _get_directory(page_file: PageFile) -> str:
    # A file that is named ".md" has no directory of attachments; the root of the wiki is not it.
    return page_file.file.rpartition(".")[0] or "."


def _to_attachment(file: str, attached_file: AttachedFile, changed_at: datetime | None = None) -> Attachment:
    name = file.rpartition("/")[2]
    return Attachment(name, file, attached_file.size, guess_media_type(name), attached_file.blob, changed_at)


def guess_media_type(filename: str) -> str:
    """The media type of a file, by its name."""
    kind, encoding = _get_mime_types().guess_type(filename, strict=True)
    return kind if kind and not encoding else _DEFAULT_MEDIA_TYPE


@cache
def _get_mime_types() -> mimetypes.MimeTypes:
    return mimetypes.MimeTypes()  # only Python's own table, which is the same on every machine


def _build_not_found_error(filename: str) -> AttachmentNotFound:
    return AttachmentNotFound(
        f"there is no attachment {filename[:200]!r}", hint="list the page's attachments to see their names"
    )


def _build_no_file_error(path: str) -> AttachmentNotFound:
    return AttachmentNotFound(f"there is no file {path[:200]!r}", hint="check the link on the page")
