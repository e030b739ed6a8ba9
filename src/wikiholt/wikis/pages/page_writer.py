"""Writes pages: each write is validated and becomes one commit, which is retried if another commit came first."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from wikiholt.domain.git import Author, FileEdit
from wikiholt.domain.page import PageDeleteResult, PageWriteResult
from wikiholt.errors import Busy, InputTooLarge, InvalidPage, PageExists, RevisionMismatch, SourceCorrupt
from wikiholt.text.page_names import get_page_path, is_document
from wikiholt.wikis.pages.page_reader import PageFile, PageReader, get_new_file, parse_name_and_warnings, read_text

_MAX_TRIES = 8
"""How often a write is retried after conflicting commits."""

_MIN_REVISION_CHARS = 7

T = TypeVar("T")


class PageWriter(PageReader):
    """Writes the pages of one wiki."""

    def write(
        self,
        path: str,
        content: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        create_only: bool = False,
    ) -> PageWriteResult:
        """Write the page. Raises PageExists if `create_only` and it exists."""
        data = self._encode(content)

        def attempt() -> PageWriteResult:
            page_file = self._find_page(path, self._read_head())
            self._require_revision(page_file, expected)
            if page_file is not None and create_only:
                raise PageExists(f"the page {page_file.path!r} already exists", hint="edit it, or choose another path")
            return self._save(page_file, page_file.file if page_file else get_new_file(path), data, author, message)

        return self._retry(attempt)

    def replace_text(
        self,
        path: str,
        old: str,
        new: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        replace_all: bool = False,
    ) -> PageWriteResult:
        """Replace `old`. Raises InvalidPage if it does not occur, or without `replace_all` more than once."""
        if not old:
            raise InvalidPage("the text to replace (old_string) is empty", hint="give the text exactly as on the page")

        def edit_text(text: str) -> str:
            return _replace(text, old, new, replace_all=replace_all)

        return self._edit(path, edit_text, author, message, expected)

    def append(
        self, path: str, text: str, author: Author, message: str = "", *, expected: str | None = None
    ) -> PageWriteResult:
        """Append text to the page, on a new line."""
        if not text:
            raise InvalidPage("the text to add is empty", hint="give the text to add")

        def edit_text(before: str) -> str:
            line_end = "\r\n" if "\r\n" in before else "\n"
            separator = line_end if before and not before.endswith("\n") else ""
            return f"{before}{separator}{text}" + ("" if text.endswith("\n") else line_end)

        return self._edit(path, edit_text, author, message, expected)

    def delete(self, path: str, author: Author, message: str = "", *, expected: str | None = None) -> PageDeleteResult:
        def attempt() -> PageDeleteResult:
            page_file = self._get_current(path, expected, self._read_head())
            edit = FileEdit(page_file.file, None, page_file.blob)
            revision = self._commit([edit], author, message or f"Delete {page_file.path}")
            return PageDeleteResult(page_file.path, page_file.file, revision)

        return self._retry(attempt)

    def _encode(self, content: str) -> bytes:
        """The content as UTF-8. Raises InvalidPage or InputTooLarge."""
        if "\0" in content:
            raise InvalidPage("the page contains a NUL character", hint="send text")
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise InvalidPage("the page cannot be encoded as UTF-8", hint="send UTF-8") from None
        if len(data) > self._pipeline.max_bytes:
            raise InputTooLarge(
                f"the page has {len(data):,} bytes; the limit is {self._pipeline.max_bytes:,}",
                hint="split it into several pages, or raise page.max_bytes",
            )
        return data

    def _check_attachment_size(self, data: bytes) -> None:
        if len(data) > self._pipeline.max_bytes:
            raise InputTooLarge(
                f"the file has {len(data):,} bytes; the limit is {self._pipeline.max_bytes:,}",
                hint="attach a smaller file, or raise page.max_bytes",
            )

    def _get_current(self, path: str, expected: str | None, head: str | None) -> PageFile:
        """The page at HEAD. Raises RevisionMismatch unless it was last changed by `expected`."""
        page_file = self._get_page(path, head)
        self._require_revision(page_file, expected)
        return page_file

    def _require_revision(self, page_file: PageFile | None, expected: str | None) -> None:
        if expected is None:
            return
        if len(expected) < _MIN_REVISION_CHARS:
            raise InvalidPage(
                f"a revision has at least {_MIN_REVISION_CHARS} characters", hint="send more digits of the commit id"
            )
        current = self._get_revision(page_file) if page_file is not None else None
        if current is None or not current.startswith(expected.lower()):
            raise RevisionMismatch(
                "Revision mismatch: the page has changed since it was read" if current else "the page does not exist",
                current=current,
                hint="read it again and repeat the change",
            )

    def _get_revision(self, page_file: PageFile) -> str:
        """The commit that last changed the page, or HEAD if the history cannot be read so far."""
        with suppress(SourceCorrupt):
            for commit in self._source.read_history(page_file.file, 1):
                return commit.revision
        return self._source.get_head()

    def _edit(
        self, path: str, change: Callable[[str], str], author: Author, message: str, expected: str | None
    ) -> PageWriteResult:
        def attempt() -> PageWriteResult:
            page_file = self._get_current(path, expected, self._read_head())
            text = read_text(self._source, page_file, self._pipeline).text
            return self._save(page_file, page_file.file, self._encode(change(text)), author, message)

        return self._retry(attempt)

    def _save(
        self, page_file: PageFile | None, file: str, data: bytes, author: Author, message: str
    ) -> PageWriteResult:
        path = get_page_path(file)
        if is_document(file):
            raise InvalidPage(f"{path} is a document and not Markdown", hint="change the file itself")
        name, warnings = parse_name_and_warnings(file, data, self.get_pipeline())
        if page_file is not None and self._has_content(page_file, data):
            return PageWriteResult(
                name, path, file, self._get_revision(page_file), created=False, changed=False, warnings=warnings
            )
        edit = FileEdit(file, data, page_file.blob if page_file else None)
        revision = self._commit([edit], author, message or f"{'Update' if page_file else 'Create'} {path}")
        return PageWriteResult(name, path, file, revision, created=page_file is None, changed=True, warnings=warnings)

    def _has_content(self, page_file: PageFile, data: bytes) -> bool:
        (blob,) = self._source.read_blobs([page_file.blob], self._pipeline.max_bytes)
        return blob.data == data

    def _retry(self, attempt: Callable[[], T]) -> T:
        """Run a write, and repeat it from the current state after conflicting commits. Raises Busy."""
        for _ in range(_MAX_TRIES):
            try:
                return attempt()
            except _EditConflict:
                continue
        raise Busy("other writers keep changing this page", hint="try again in a moment")

    def _commit(self, edits: list[FileEdit], author: Author, message: str) -> str:
        """Commit the edits. Raises _EditConflict if a file has changed since the edits were made."""
        try:
            return self._source.commit(edits, author, message)
        except RevisionMismatch as error:
            raise _EditConflict from error


class _EditConflict(Exception):
    """Another commit changed a file of the edit."""


def _replace(text: str, old: str, new: str, *, replace_all: bool) -> str:
    if "\r\n" in text and old not in text:
        # Editors do not see line endings.
        old, new = (re.sub(r"\r?\n", "\r\n", part) for part in (old, new))
    count = text.count(old)
    if not count or (count > 1 and not replace_all):
        raise InvalidPage(
            f"the text is ambiguous: it occurs {count} times on the page"
            if count
            else "the text was not found on the page",
            hint="give more of the surrounding text" if count else "read the page again; the text must match exactly",
        )
    return text.replace(old, new)
