"""Files attached to pages: what is no page and lies in the directory that bears the page's name."""

import mimetypes
from datetime import datetime
from functools import cache

from wikiholt.domain.git import AttachedFile, Author, FileEdit
from wikiholt.domain.page import Attachment, AttachmentList, AttachmentResult
from wikiholt.errors import AttachmentNotFound, InputTooLarge, InvalidPage, PageExists
from wikiholt.wikis.pages.page_locator import PageFile
from wikiholt.wikis.pages.page_writer import PageWriter

_DEFAULT_MEDIA_TYPE = "application/octet-stream"


class PageAttachments:
    """Lists, reads and writes the attachments of one wiki's pages."""

    def __init__(self, writer: PageWriter) -> None:
        self._writer = writer
        self._source = writer.source
        self._max_bytes = writer.pipeline.max_bytes

    def list(self, path: str) -> AttachmentList:
        head = self._writer.locator.get_head()
        place = self._writer.locator.get_page(path, head)
        assert head is not None, "there is a page, so there is a commit"
        folder = _get_folder(place)
        found = self._source.list_attached_files(folder, head)
        files = {name: f"{folder}/{name}" for name in sorted(found)}
        moments = self._source.get_change_dates(list(files.values()), head, None) if files else {}
        return AttachmentList(
            place.path,
            tuple(_to_attachment(file, found[name], moments.get(file)) for name, file in files.items()),
        )

    def read(self, path: str, filename: str) -> AttachmentResult:
        head = self._writer.locator.get_head()
        place, held = self._find(path, filename)
        if held is None:
            raise _build_not_found_error(filename)
        if held.size > self._max_bytes:
            raise InputTooLarge(
                f"the file has {held.size:,} bytes; the limit is {self._max_bytes:,}", hint="read it with git instead"
            )
        (blob,) = self._source.read_blobs([held.blob], self._max_bytes)
        if blob.data is None:
            raise InvalidPage("git could not read this file", hint="look at the repository with `git fsck`")
        file = f"{_get_folder(place)}/{filename}"
        return AttachmentResult(place.path, _to_attachment(file, held), head or "", data=blob.data)

    def write(
        self, path: str, filename: str, data: bytes, author: Author, message: str, *, create_only: bool
    ) -> AttachmentResult:
        if len(data) > self._max_bytes:
            raise InputTooLarge(
                f"the file has {len(data):,} bytes; the limit is {self._max_bytes:,}",
                hint="attach a smaller one, or raise page.max_bytes",
            )

        def attempt() -> AttachmentResult:
            place, held = self._find(path, filename)
            if held is not None and create_only:
                raise PageExists("there is an attachment of this name already", hint="choose another name")
            file = f"{_get_folder(place)}/{filename}"
            edit = FileEdit(file, data, held.blob if held else None, is_attachment=True)
            told = message or f"{'Replace' if held else 'Attach'} {filename} {'of' if held else 'to'} {place.path}"
            revision = self._writer.commit([edit], author, told)
            now = self._source.list_attached_files(_get_folder(place), revision)[filename]
            return AttachmentResult(place.path, _to_attachment(file, now), revision, created=held is None)

        return self._writer.retry(attempt)

    def delete(self, path: str, filename: str, author: Author, message: str) -> AttachmentResult:
        def attempt() -> AttachmentResult:
            place, held = self._find(path, filename)
            if held is None:
                raise _build_not_found_error(filename)
            file = f"{_get_folder(place)}/{filename}"
            told = message or f"Delete {filename} of {place.path}"
            revision = self._writer.commit([FileEdit(file, None, held.blob, is_attachment=True)], author, told)
            return AttachmentResult(place.path, _to_attachment(file, held), revision)

        return self._writer.retry(attempt)

    def _find(self, path: str, filename: str) -> tuple[PageFile, AttachedFile | None]:
        """The page, and the file of this name that is attached to it now."""
        head = self._writer.locator.get_head()
        place = self._writer.locator.get_page(path, head)
        if not filename or "/" in filename:
            raise InvalidPage("that is no name of a file", hint="name it without directories, such as report.pdf")
        assert head is not None, "there is a page, so there is a commit"
        return place, self._source.list_attached_files(_get_folder(place), head).get(filename)


def _get_folder(page_file: PageFile) -> str:
    return page_file.file.rpartition(".")[0]


def _to_attachment(file: str, attached_file: AttachedFile, changed_at: datetime | None = None) -> Attachment:
    name = file.rpartition("/")[2]
    return Attachment(name, file, attached_file.size, guess_media_type(name), attached_file.blob, changed_at)


def guess_media_type(filename: str) -> str:
    """What a file seems to be, by its name."""
    kind, encoding = _get_mime_types().guess_type(filename, strict=True)
    return kind if kind and not encoding else _DEFAULT_MEDIA_TYPE


@cache
def _get_mime_types() -> mimetypes.MimeTypes:
    return mimetypes.MimeTypes()  # Python's own table: what this machine's files say would differ elsewhere


def _build_not_found_error(filename: str) -> AttachmentNotFound:
    return AttachmentNotFound(
        f"there is no attachment {filename[:200]!r}", hint="list the page's attachments to see their names"
    )
