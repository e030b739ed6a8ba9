"""Pages written: every write is checked, then one commit on what was read, made again where somebody was faster."""

import re
from collections.abc import Callable
from typing import TypeVar

from wikiholt.contents.locating import Located, Locator, new_file
from wikiholt.contents.reading import name_and_warnings, read_blob, read_text
from wikiholt.errors import Busy, InvalidPage, PageExists, RevisionMismatch, TooLarge
from wikiholt.model import Author, Deleted, FileEdit, Written
from wikiholt.pages import Pipeline
from wikiholt.ports import Source
from wikiholt.text.page import page_path

_TRIES = 8
"""Times a write is made again, from what is there then, when another one came between."""

_REVISION = re.compile(r"[0-9a-f]{7,64}")

T = TypeVar("T")


class Writing:
    """Writes the pages of one wiki."""

    def __init__(self, source: Source, pipeline: Pipeline, locator: Locator) -> None:
        self.source = source
        self.pipeline = pipeline
        self.locator = locator

    def put(
        self, path: str, content: str, author: Author, message: str, expected: str | None, create_only: bool
    ) -> Written:
        data = self.encoded(content)

        def once() -> Written:
            place = self.locator.find(path, self.locator.head())
            self._require(place, expected)
            if place is not None and create_only:
                raise PageExists(f"there is a page {place.path!r} already", hint="edit it, or choose another path")
            return self._save(place, place.file if place else new_file(path), data, author, message)

        return self.retried(once)

    def patch(self, path: str, old: str, new: str, author: Author, message: str, expected: str | None) -> Written:
        if not old:
            raise InvalidPage("the text to replace is empty", hint="give the text as it stands on the page")

        def replaced(text: str) -> str:
            return _replaced(text, old, new)

        return self._edit(path, replaced, author, message, expected)

    def append(self, path: str, text: str, author: Author, message: str, expected: str | None) -> Written:
        if not text:
            raise InvalidPage("the text to add is empty", hint="say what to add")

        def longer(before: str) -> str:
            end = "\r\n" if "\r\n" in before else "\n"
            gap = end if before and not before.endswith("\n") else ""
            return f"{before}{gap}{text}" + ("" if text.endswith("\n") else end)

        return self._edit(path, longer, author, message, expected)

    def delete(self, path: str, author: Author, message: str, expected: str | None) -> Deleted:
        def once() -> Deleted:
            place = self.standing(path, expected)
            edit = FileEdit(place.file, None, place.blob)
            revision = self.commit([edit], author, message or f"Delete {place.path}")
            return Deleted(place.path, place.file, revision)

        return self.retried(once)

    def encoded(self, content: str) -> bytes:
        """The content as it will lie in git; raises InvalidPage or TooLarge before anything is touched."""
        if "\0" in content:
            raise InvalidPage("the page holds a NUL character", hint="send text")
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise InvalidPage("the page is no text that UTF-8 can hold", hint="send UTF-8") from None
        if len(data) > self.pipeline.max_bytes:
            raise TooLarge(
                f"the page has {len(data):,} bytes; the limit is {self.pipeline.max_bytes:,}",
                hint="split it into several pages, or raise page.max_bytes",
            )
        return data

    def standing(self, path: str, expected: str | None) -> Located:
        """The page at HEAD, which must be as the writer last saw it."""
        place = self.locator.page(path, self.locator.head())
        self._require(place, expected)
        return place

    def _require(self, place: Located | None, expected: str | None) -> None:
        if expected is None:
            return
        if not _REVISION.fullmatch(expected.lower()):
            raise InvalidPage(f"{expected[:80]!r} is no revision", hint="send at least 7 digits of a commit's id")
        current = self._revision(place) if place is not None else None
        if current is None or not current.startswith(expected.lower()):
            raise RevisionMismatch(
                "the page was changed since it was read" if current else "the page is not there",
                current=current,
                hint="read it again and make the change on what it says now",
            )

    def _revision(self, place: Located) -> str:
        """The commit that last changed the page."""
        commits = self.source.history(place.file, 1)
        return commits[0].revision if commits else self.source.head()

    def _edit(
        self, path: str, change: Callable[[str], str], author: Author, message: str, expected: str | None
    ) -> Written:
        def once() -> Written:
            place = self.standing(path, expected)
            text = read_text(self.source, place, self.pipeline.max_bytes).text
            return self._save(place, place.file, self.encoded(change(text)), author, message)

        return self.retried(once)

    def _save(self, place: Located | None, file: str, data: bytes, author: Author, message: str) -> Written:
        path = page_path(file)
        name, warnings = name_and_warnings(file, data, self.pipeline)
        if place is not None and read_blob(self.source, place, self.pipeline.max_bytes) == data:
            return Written(name, path, file, self._revision(place), created=False, changed=False, warnings=warnings)
        edit = FileEdit(file, data, place.blob if place else None)
        told = message or f"{'Update' if place else 'Create'} {path}"
        revision = self.commit([edit], author, told)
        return Written(name, path, file, revision, created=place is None, changed=True, warnings=warnings)

    def retried(self, once: Callable[[], T]) -> T:
        """The write, made again from what is there then as long as others come between."""
        for _ in range(_TRIES):
            try:
                return once()
            except _Overtaken:
                continue
        raise Busy("others keep changing this page", hint="try again in a moment")

    def commit(self, edits: list[FileEdit], author: Author, message: str) -> str:
        """One commit of these edits, or _Overtaken where a file is not what it was when the edits were made."""
        try:
            return self.source.write(edits, author, message)
        except RevisionMismatch as error:
            raise _Overtaken from error


class _Overtaken(Exception):
    """Somebody else changed what an edit was made on."""


def _replaced(text: str, old: str, new: str) -> str:
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
