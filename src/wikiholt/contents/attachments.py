"""Files attached to pages: what is no page and lies in the directory that bears the page's name."""

import mimetypes
from datetime import datetime
from functools import cache

from wikiholt.contents.locating import Located
from wikiholt.contents.writing import Writing
from wikiholt.errors import AttachmentNotFound, InvalidPage, PageExists, TooLarge
from wikiholt.model import Attached, AttachedFile, Attachment, Attachments, Author, FileEdit

_UNKNOWN = "application/octet-stream"


class Attaching:
    """Lists, reads and writes the attachments of one wiki's pages."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing
        self._source = writing.source
        self._limit = writing.pipeline.max_bytes

    def list(self, path: str) -> Attachments:
        head = self._writing.locator.head()
        place = self._writing.locator.page(path, head)
        assert head is not None, "there is a page, so there is a commit"
        folder = _folder(place)
        found = self._source.attached(folder, head)
        files = {name: f"{folder}/{name}" for name in sorted(found)}
        moments = self._source.last_changed(list(files.values()), head, None) if files else {}
        return Attachments(
            place.path,
            tuple(_attachment(file, found[name], moments.get(file)) for name, file in files.items()),
        )

    def read(self, path: str, filename: str) -> Attached:
        head = self._writing.locator.head()
        place, held = self._held(path, filename)
        if held is None:
            raise _missing(filename)
        if held.size > self._limit:
            raise TooLarge(
                f"the file has {held.size:,} bytes; the limit is {self._limit:,}", hint="read it with git instead"
            )
        (blob,) = self._source.read([held.blob], self._limit)
        if blob.data is None:
            raise InvalidPage("git could not read this file", hint="look at the repository with `git fsck`")
        file = f"{_folder(place)}/{filename}"
        return Attached(place.path, _attachment(file, held), head or "", data=blob.data)

    def put(
        self, path: str, filename: str, data: bytes, author: Author, message: str, *, create_only: bool
    ) -> Attached:
        if len(data) > self._limit:
            raise TooLarge(
                f"the file has {len(data):,} bytes; the limit is {self._limit:,}",
                hint="attach a smaller one, or raise page.max_bytes",
            )

        def once() -> Attached:
            place, held = self._held(path, filename)
            if held is not None and create_only:
                raise PageExists("there is an attachment of this name already", hint="choose another name")
            file = f"{_folder(place)}/{filename}"
            edit = FileEdit(file, data, held.blob if held else None, attached=True)
            told = message or f"{'Replace' if held else 'Attach'} {filename} {'of' if held else 'to'} {place.path}"
            revision = self._writing.commit([edit], author, told)
            now = self._source.attached(_folder(place), revision)[filename]
            return Attached(place.path, _attachment(file, now), revision, created=held is None)

        return self._writing.retried(once)

    def delete(self, path: str, filename: str, author: Author, message: str) -> Attached:
        def once() -> Attached:
            place, held = self._held(path, filename)
            if held is None:
                raise _missing(filename)
            file = f"{_folder(place)}/{filename}"
            told = message or f"Delete {filename} of {place.path}"
            revision = self._writing.commit([FileEdit(file, None, held.blob, attached=True)], author, told)
            return Attached(place.path, _attachment(file, held), revision)

        return self._writing.retried(once)

    def _held(self, path: str, filename: str) -> tuple[Located, AttachedFile | None]:
        """The page, and the file of this name that is attached to it now."""
        head = self._writing.locator.head()
        place = self._writing.locator.page(path, head)
        if not filename or "/" in filename:
            raise InvalidPage("that is no name of a file", hint="name it without directories, such as report.pdf")
        assert head is not None, "there is a page, so there is a commit"
        return place, self._source.attached(_folder(place), head).get(filename)


def _folder(place: Located) -> str:
    return place.file.rpartition(".")[0]


def _attachment(file: str, held: AttachedFile, changed: datetime | None = None) -> Attachment:
    name = file.rpartition("/")[2]
    return Attachment(name, file, held.size, media_type(name), held.blob, changed)


def media_type(filename: str) -> str:
    """What a file seems to be, by its name."""
    kind, encoding = _kinds().guess_type(filename, strict=True)
    return kind if kind and not encoding else _UNKNOWN


@cache
def _kinds() -> mimetypes.MimeTypes:
    return mimetypes.MimeTypes()  # Python's own table: what this machine's files say would differ elsewhere


def _missing(filename: str) -> AttachmentNotFound:
    return AttachmentNotFound(
        f"there is no attachment {filename[:200]!r}", hint="list the page's attachments to see their names"
    )
