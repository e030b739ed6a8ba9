"""A page gets another path, and links follow it: one commit."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wikiholt.contents.locating import PageFile, IndexOpener, get_new_file
from wikiholt.contents.reading import parse_name_and_warnings
from wikiholt.contents.writing import PageWriter
from wikiholt.errors import IndexUnavailable, InvalidPage, PageExists
from wikiholt.model import Author, EntryKind, FileEdit, PageRenameResult, TreeEntry
from wikiholt.text.links import PageNameIndex, fold_path, get_last_part
from wikiholt.text.page import get_page_path
from wikiholt.text.rewriting import PageMove, rewrite_links


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

    def _build_edits(self, page_file: PageFile, file: str, update_links: bool, link_path: str | None) -> tuple[bytes, list[_EditedPage]]:
        """What the moved page will hold, and the other pages whose links change with it."""
        head = self._source.get_head()
        limit = self._writer.pipeline.max_bytes
        (own,) = self._source.read_blobs([page_file.blob], limit)
        if own.data is None:
            raise InvalidPage(f"git could not read {page_file.path}", hint="it may be over page.max_bytes; rename with git")
        if not update_links:
            return own.data, []
        tree = self._source.read_tree(head)
        before = {get_page_path(each) for each, entry in tree.items() if entry.kind is EntryKind.FILE}
        old, new, whole = page_file.path, link_path or get_page_path(file), link_path is not None
        move = PageMove(old, new, PageNameIndex(before, full_paths_only=whole), PageNameIndex(before - {old} | {new}, full_paths_only=whole))
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
