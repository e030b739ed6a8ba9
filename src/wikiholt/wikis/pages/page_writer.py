"""Writes pages: each write is validated and becomes one commit, which is retried if another commit came first."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from wikiholt.domain.git import Author, EntryKind, FileEdit, TreeEntry
from wikiholt.domain.page import PageDeleteResult, PageRenameResult, PageWriteResult
from wikiholt.domain.protocols import Source
from wikiholt.errors import Busy, IndexUnavailable, InputTooLarge, InvalidPage, PageExists, RevisionMismatch
from wikiholt.indexing.pipeline import TextPipeline
from wikiholt.text.link_rewrite import PageMove, rewrite_links
from wikiholt.text.links import PageNameIndex, fold_path, get_last_part
from wikiholt.text.page_names import get_page_path
from wikiholt.wikis.pages.page_locator import IndexOpener, PageFile, PageLocator, get_new_file
from wikiholt.wikis.pages.page_reader import parse_name_and_warnings, read_blob, read_text

_MAX_TRIES = 8
"""How often a write is retried after conflicting commits."""

_MIN_REVISION_CHARS = 7

T = TypeVar("T")


class PageWriter:
    """Writes the pages of one wiki."""

    def __init__(self, source: Source, pipeline: TextPipeline, locator: PageLocator) -> None:
        self.source = source
        self.pipeline = pipeline
        self.locator = locator

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
        data = self.encode(content)

        def attempt() -> PageWriteResult:
            page_file = self.locator.find_page(path, self.locator.get_head())
            self._require_revision(page_file, expected)
            if page_file is not None and create_only:
                raise PageExists(f"the page {page_file.path!r} already exists", hint="edit it, or choose another path")
            return self._save(page_file, page_file.file if page_file else get_new_file(path), data, author, message)

        return self.retry(attempt)

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
            page_file = self.get_current(path, expected, self.locator.get_head())
            edit = FileEdit(page_file.file, None, page_file.blob)
            revision = self.commit([edit], author, message or f"Delete {page_file.path}")
            return PageDeleteResult(page_file.path, page_file.file, revision)

        return self.retry(attempt)

    def encode(self, content: str) -> bytes:
        """The content as UTF-8. Raises InvalidPage or InputTooLarge."""
        if "\0" in content:
            raise InvalidPage("the page contains a NUL character", hint="send text")
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise InvalidPage("the page cannot be encoded as UTF-8", hint="send UTF-8") from None
        if len(data) > self.pipeline.max_bytes:
            raise InputTooLarge(
                f"the page has {len(data):,} bytes; the limit is {self.pipeline.max_bytes:,}",
                hint="split it into several pages, or raise page.max_bytes",
            )
        return data

    def get_current(self, path: str, expected: str | None, head: str | None) -> PageFile:
        """The page at HEAD. Raises RevisionMismatch unless it was last changed by `expected`."""
        page_file = self.locator.get_page(path, head)
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
        """The commit that last changed the page."""
        commits = self.source.read_history(page_file.file, 1)
        return commits[0].revision if commits else self.source.get_head()

    def _edit(
        self, path: str, change: Callable[[str], str], author: Author, message: str, expected: str | None
    ) -> PageWriteResult:
        def attempt() -> PageWriteResult:
            page_file = self.get_current(path, expected, self.locator.get_head())
            text = read_text(self.source, page_file, self.pipeline.max_bytes).text
            return self._save(page_file, page_file.file, self.encode(change(text)), author, message)

        return self.retry(attempt)

    def _save(
        self, page_file: PageFile | None, file: str, data: bytes, author: Author, message: str
    ) -> PageWriteResult:
        path = get_page_path(file)
        name, warnings = parse_name_and_warnings(file, data, self.locator.get_pipeline())
        if page_file is not None and read_blob(self.source, page_file, self.pipeline.max_bytes) == data:
            return PageWriteResult(
                name, path, file, self._get_revision(page_file), created=False, changed=False, warnings=warnings
            )
        edit = FileEdit(file, data, page_file.blob if page_file else None)
        revision = self.commit([edit], author, message or f"{'Update' if page_file else 'Create'} {path}")
        return PageWriteResult(name, path, file, revision, created=page_file is None, changed=True, warnings=warnings)

    def retry(self, attempt: Callable[[], T]) -> T:
        """Run a write, and repeat it from the current state after conflicting commits. Raises Busy."""
        for _ in range(_MAX_TRIES):
            try:
                return attempt()
            except _EditConflict:
                continue
        raise Busy("other writers keep changing this page", hint="try again in a moment")

    def commit(self, edits: list[FileEdit], author: Author, message: str) -> str:
        """Commit the edits. Raises _EditConflict if a file has changed since the edits were made."""
        try:
            return self.source.commit(edits, author, message)
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


class _EditedPage(NamedTuple):
    file: str
    blob: str
    data: bytes


class PageRenamer:
    """Renames the pages of one wiki and updates links to them, in one commit."""

    def __init__(self, writer: PageWriter, open_index: IndexOpener) -> None:
        self._writer = writer
        self._source = writer.source
        self._open_index = open_index

    def rename(
        self,
        path: str,
        new_path: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        update_links: bool = True,
        link_path: str | None = None,
    ) -> PageRenameResult:
        """Move the page to another path and update links to it, in one commit. Raises PageExists if the path is taken.

        Links keep the form in which they were written. Without `update_links` only the file moves. `link_path` is the
        new path as written in links, which may differ in case.
        """
        file = get_new_file(new_path)

        def attempt() -> PageRenameResult:
            head = self._writer.locator.get_head()
            page_file = self._writer.get_current(path, expected, head)
            assert head is not None, "there is a page, so there is a commit"
            self._require_free(page_file, file, new_path, head)
            moved, others = self._build_edits(page_file, file, head, update_links, link_path)
            edits = [FileEdit(page_file.file, None, page_file.blob), FileEdit(file, moved, None)]
            edits += [FileEdit(other.file, other.data, other.blob) for other in others]
            default = f"Rename {page_file.path} to {get_page_path(file)}"
            revision = self._writer.commit(edits, author, message or default)
            name, _ = parse_name_and_warnings(file, moved, self._writer.locator.get_pipeline())
            updated = tuple(get_page_path(other.file) for other in others)
            return PageRenameResult(name, get_page_path(file), file, page_file.path, revision, updated)

        return self._writer.retry(attempt)

    def _require_free(self, page_file: PageFile, file: str, new_path: str, head: str) -> None:
        if file == page_file.file:
            raise InvalidPage(f"{page_file.path!r} is already the page's path", hint="give another path")
        existing = self._writer.locator.find_page(new_path, head)
        if existing is not None and existing.file != page_file.file:
            raise PageExists(f"the page {existing.path!r} already exists", hint="choose another path")

    def _build_edits(
        self, page_file: PageFile, file: str, head: str, update_links: bool, link_path: str | None
    ) -> tuple[bytes, list[_EditedPage]]:
        """The new content of the moved page, and the other pages whose links change."""
        limit = self._writer.pipeline.max_bytes
        (own,) = self._source.read_blobs([page_file.blob], limit)
        if own.data is None:
            raise InvalidPage(
                f"git could not read {page_file.path}", hint="it may be over page.max_bytes; rename with git"
            )
        if not update_links:
            return own.data, []
        tree = self._source.read_tree(head)
        before = {get_page_path(other) for other, entry in tree.items() if entry.kind is EntryKind.FILE}
        old, new = page_file.path, get_page_path(file)
        dialect = self._writer.locator.get_pipeline().dialect
        before_names, after_names = (
            PageNameIndex(paths, resolution=dialect.resolution) for paths in (before, before - {old} | {new})
        )
        move = PageMove(old, new, before_names, after_names, dialect, link_path or new)
        candidates = [other for other in sorted(self._find_candidates(tree, head, old, new)) if other != page_file.file]
        blobs = self._source.read_blobs((tree[other].blob for other in candidates), limit)
        others = [
            _EditedPage(other, blob.id, data)
            for other, blob in zip(candidates, blobs, strict=True)
            if blob.data is not None and (data := rewrite_links(blob.data, other, other, move)) != blob.data
        ]
        return rewrite_links(own.data, page_file.file, file, move), others

    def _find_candidates(self, tree: Mapping[str, TreeEntry], head: str, old: str, new: str) -> Iterator[str]:
        """Pages that may contain a link whose target changes: by the index if it helps, else all pages."""
        keys = {fold_path(name) for path in (old, new) for name in (path, get_last_part(path))}
        try:
            with self._open_index() as index:
                indexed = index.get_state().revision
                changes = self._source.get_changes(indexed, head) if indexed else None
                if changes is None:
                    files = set(tree)
                else:
                    ids = {link.page_id for link in index.find_links_by_key(sorted(keys))}
                    files = {page.file for page in index.get_pages(list(ids)).values()}
                    files |= {change.file for change in changes} | {problem.file for problem in index.get_problems()}
        except IndexUnavailable:
            files = set(tree)
        yield from (file for file in files if file in tree and tree[file].kind is EntryKind.FILE)
