"""Pages written: every write is checked, then one commit on what was read, made again where somebody was faster."""

import re
from collections.abc import Callable
from typing import TypeVar

from wikiholt.contents.locating import PageFile, PageLocator, get_new_file
from wikiholt.contents.reading import parse_name_and_warnings, read_blob, read_text
from wikiholt.errors import Busy, InvalidPage, PageExists, RevisionMismatch, InputTooLarge
from wikiholt.model import Author, PageDeleteResult, FileEdit, PageWriteResult
from wikiholt.pages import TextPipeline
from wikiholt.ports import Source
from wikiholt.text.page import get_page_path

_MAX_TRIES = 8
"""Times a write is made again, from what is there then, when another one came between."""

_REVISION_PATTERN = re.compile(r"[0-9a-f]{7,64}")

T = TypeVar("T")


class PageWriter:
    """Writes the pages of one wiki."""

    def __init__(self, source: Source, pipeline: TextPipeline, locator: PageLocator) -> None:
        self.source = source
        self.pipeline = pipeline
        self.locator = locator

    def write(
        self, path: str, content: str, author: Author, message: str, expected: str | None, create_only: bool
    ) -> PageWriteResult:
        data = self.encode(content)

        def attempt() -> PageWriteResult:
            place = self.locator.find_page(path, self.locator.get_head())
            self._require_revision(place, expected)
            if place is not None and create_only:
                raise PageExists(f"there is a page {place.path!r} already", hint="edit it, or choose another path")
            return self._save(place, place.file if place else get_new_file(path), data, author, message)

        return self.retry(attempt)

    def replace_text(self, path: str, old: str, new: str, author: Author, message: str, expected: str | None) -> PageWriteResult:
        if not old:
            raise InvalidPage("the text to replace is empty", hint="give the text as it stands on the page")

        def edit_text(text: str) -> str:
            return _replace_once(text, old, new)

        return self._edit(path, edit_text, author, message, expected)

    def append(self, path: str, text: str, author: Author, message: str, expected: str | None) -> PageWriteResult:
        if not text:
            raise InvalidPage("the text to add is empty", hint="say what to add")

        def edit_text(before: str) -> str:
            end = "\r\n" if "\r\n" in before else "\n"
            gap = end if before and not before.endswith("\n") else ""
            return f"{before}{gap}{text}" + ("" if text.endswith("\n") else end)

        return self._edit(path, edit_text, author, message, expected)

    def delete(self, path: str, author: Author, message: str, expected: str | None) -> PageDeleteResult:
        def attempt() -> PageDeleteResult:
            place = self.get_current(path, expected)
            edit = FileEdit(place.file, None, place.blob)
            revision = self.commit([edit], author, message or f"Delete {place.path}")
            return PageDeleteResult(place.path, place.file, revision)

        return self.retry(attempt)

    def encode(self, content: str) -> bytes:
        """The content as it will lie in git; raises InvalidPage or TooLarge before anything is touched."""
        if "\0" in content:
            raise InvalidPage("the page holds a NUL character", hint="send text")
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise InvalidPage("the page is no text that UTF-8 can hold", hint="send UTF-8") from None
        if len(data) > self.pipeline.max_bytes:
            raise InputTooLarge(
                f"the page has {len(data):,} bytes; the limit is {self.pipeline.max_bytes:,}",
                hint="split it into several pages, or raise page.max_bytes",
            )
        return data

    def get_current(self, path: str, expected: str | None) -> PageFile:
        """The page at HEAD, which must be as the writer last saw it."""
        place = self.locator.get_page(path, self.locator.get_head())
        self._require_revision(place, expected)
        return place

    def _require_revision(self, page_file: PageFile | None, expected: str | None) -> None:
        if expected is None:
            return
        if not _REVISION_PATTERN.fullmatch(expected.lower()):
            raise InvalidPage(f"{expected[:80]!r} is no revision", hint="send at least 7 digits of a commit's id")
        current = self._get_revision(page_file) if page_file is not None else None
        if current is None or not current.startswith(expected.lower()):
            raise RevisionMismatch(
                "the page was changed since it was read" if current else "the page is not there",
                current=current,
                hint="read it again and make the change on what it says now",
            )

    def _get_revision(self, page_file: PageFile) -> str:
        """The commit that last changed the page."""
        commits = self.source.read_history(page_file.file, 1)
        return commits[0].revision if commits else self.source.get_head()

    def _edit(
        self, path: str, change: Callable[[str], str], author: Author, message: str, expected: str | None
    ) -> PageWriteResult:
        def attempt() -> PageWriteResult:
            place = self.get_current(path, expected)
            text = read_text(self.source, place, self.pipeline.max_bytes).text
            return self._save(place, place.file, self.encode(change(text)), author, message)

        return self.retry(attempt)

    def _save(self, page_file: PageFile | None, file: str, data: bytes, author: Author, message: str) -> PageWriteResult:
        path = get_page_path(file)
        name, warnings = parse_name_and_warnings(file, data, self.pipeline)
        if page_file is not None and read_blob(self.source, page_file, self.pipeline.max_bytes) == data:
            return PageWriteResult(name, path, file, self._get_revision(page_file), created=False, changed=False, warnings=warnings)
        edit = FileEdit(file, data, page_file.blob if page_file else None)
        told = message or f"{'Update' if page_file else 'Create'} {path}"
        revision = self.commit([edit], author, told)
        return PageWriteResult(name, path, file, revision, created=page_file is None, changed=True, warnings=warnings)

    def retry(self, attempt: Callable[[], T]) -> T:
        """The write, made again from what is there then as long as others come between."""
        for _ in range(_MAX_TRIES):
            try:
                return attempt()
            except _EditConflict:
                continue
        raise Busy("others keep changing this page", hint="try again in a moment")

    def commit(self, edits: list[FileEdit], author: Author, message: str) -> str:
        """One commit of these edits, or _Overtaken where a file is not what it was when the edits were made."""
        try:
            return self.source.commit(edits, author, message)
        except RevisionMismatch as error:
            raise _EditConflict from error


class _EditConflict(Exception):
    """Somebody else changed what an edit was made on."""


def _replace_once(text: str, old: str, new: str) -> str:
    if "\r\n" in text and old not in text:
        # Whoever edits sees lines, not how they end.
        old, new = (re.sub(r"\r?\n", "\r\n", each) for each in (old, new))
    count = text.count(old)
    if count != 1:
        raise InvalidPage(
            f"the page says that {count} times" if count else "the page does not say that",
            hint="give more of the text around it" if count else "read the page again; every character counts",
        )
    return text.replace(old, new)
