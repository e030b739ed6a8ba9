"""Pages written: every write is checked, then one commit on what was read, made again where somebody was faster."""

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

    def replace_text(
        self, path: str, old: str, new: str, author: Author, message: str, expected: str | None
    ) -> PageWriteResult:
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

    def _save(
        self, page_file: PageFile | None, file: str, data: bytes, author: Author, message: str
    ) -> PageWriteResult:
        path = get_page_path(file)
        name, warnings = parse_name_and_warnings(file, data, self.pipeline)
        if page_file is not None and read_blob(self.source, page_file, self.pipeline.max_bytes) == data:
            return PageWriteResult(
                name, path, file, self._get_revision(page_file), created=False, changed=False, warnings=warnings
            )
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


# A page gets another path, and links follow it: one commit.


class _EditedPage(NamedTuple):
    file: str
    blob: str
    data: bytes


class PageRenamer:
    """Renames the pages of one wiki."""

    def __init__(self, writer: PageWriter, open_index: IndexOpener) -> None:
        self._writer = writer
        self._source = writer.source
        self._open_index = open_index

    def rename(
        self,
        path: str,
        new_path: str,
        author: Author,
        message: str,
        expected: str | None,
        update_links: bool,
        link_path: str | None,
    ) -> PageRenameResult:
        file = get_new_file(new_path)

        def attempt() -> PageRenameResult:
            place = self._writer.get_current(path, expected)
            self._require_free(place, file, new_path)
            moved, others = self._build_edits(place, file, update_links, link_path)
            edits = [FileEdit(place.file, None, place.blob), FileEdit(file, moved, None)]
            edits += [FileEdit(other.file, other.data, other.blob) for other in others]
            told = message or f"Rename {place.path} to {get_page_path(file)}"
            revision = self._writer.commit(edits, author, told)
            name, _ = parse_name_and_warnings(file, moved, self._writer.pipeline)
            updated = tuple(get_page_path(other.file) for other in others)
            return PageRenameResult(name, get_page_path(file), file, place.path, revision, updated)

        return self._writer.retry(attempt)

    def _require_free(self, page_file: PageFile, file: str, new_path: str) -> None:
        if file == page_file.file:
            raise InvalidPage(f"{page_file.path!r} is the page's path already", hint="give another path")
        taken = self._writer.locator.find_page(new_path, self._writer.locator.get_head())
        if taken is not None and taken.file != page_file.file:
            raise PageExists(f"there is a page {taken.path!r} already", hint="choose another path")

    def _build_edits(
        self, page_file: PageFile, file: str, update_links: bool, link_path: str | None
    ) -> tuple[bytes, list[_EditedPage]]:
        """What the moved page will hold, and the other pages whose links change with it."""
        head = self._source.get_head()
        limit = self._writer.pipeline.max_bytes
        (own,) = self._source.read_blobs([page_file.blob], limit)
        if own.data is None:
            raise InvalidPage(
                f"git could not read {page_file.path}", hint="it may be over page.max_bytes; rename with git"
            )
        if not update_links:
            return own.data, []
        tree = self._source.read_tree(head)
        before = {get_page_path(each) for each, entry in tree.items() if entry.kind is EntryKind.FILE}
        old, new, whole = page_file.path, link_path or get_page_path(file), link_path is not None
        move = PageMove(
            old,
            new,
            PageNameIndex(before, full_paths_only=whole),
            PageNameIndex(before - {old} | {new}, full_paths_only=whole),
        )
        candidates = [each for each in sorted(self._find_candidates(tree, head, old, new)) if each != page_file.file]
        blobs = self._source.read_blobs((tree[each].blob for each in candidates), limit)
        others = [
            _EditedPage(each, blob.id, data)
            for each, blob in zip(candidates, blobs, strict=True)
            if blob.data is not None and (data := rewrite_links(blob.data, each, each, move)) != blob.data
        ]
        return rewrite_links(own.data, page_file.file, file, move), others

    def _find_candidates(self, tree: Mapping[str, TreeEntry], head: str, old: str, new: str) -> Iterator[str]:
        """The pages that may hold a link whose meaning changes: by the index as far as it goes, else all pages."""
        keys = {fold_path(each) for path in (old, new) for each in (path, get_last_part(path))}
        try:
            with self._open_index() as index:
                known = index.get_state().revision
                changes = self._source.get_changes(known, head) if known else None
                if changes is None:
                    found = set(tree)
                else:
                    ids = {link.page_id for link in index.find_links_by_key(sorted(keys))}
                    found = {page.file for page in index.get_pages(list(ids)).values()}
                    found |= {change.file for change in changes} | {problem.file for problem in index.get_problems()}
        except IndexUnavailable:
            found = set(tree)
        yield from (each for each in found if each in tree and tree[each].kind is EntryKind.FILE)
