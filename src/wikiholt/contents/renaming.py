"""A page gets another path, and links follow it: one commit."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wikiholt.contents.locating import Located, OpenIndex, new_file
from wikiholt.contents.reading import name_and_warnings
from wikiholt.contents.writing import Writing
from wikiholt.errors import IndexFault, InvalidPage, PageExists
from wikiholt.model import Author, EntryKind, FileEdit, Renamed, TreeEntry
from wikiholt.text.links import Names, folded, last_part
from wikiholt.text.page import page_path
from wikiholt.text.rewriting import Move, rewritten


class _Edited(NamedTuple):
    file: str
    blob: str
    data: bytes


class Renaming:
    """Renames the pages of one wiki."""

    def __init__(self, writing: Writing, index: OpenIndex) -> None:
        self._writing = writing
        self._source = writing.source
        self._index = index

    def rename(
        self,
        path: str,
        new_path: str,
        author: Author,
        message: str,
        expected: str | None,
        update_links: bool,
        spelled: str | None,
    ) -> Renamed:
        file = new_file(new_path)

        def once() -> Renamed:
            place = self._writing.standing(path, expected)
            self._require_free(place, file, new_path)
            moved, others = self._edits(place, file, update_links, spelled)
            edits = [FileEdit(place.file, None, place.blob), FileEdit(file, moved, None)]
            edits += [FileEdit(other.file, other.data, other.blob) for other in others]
            told = message or f"Rename {place.path} to {page_path(file)}"
            revision = self._writing.commit(edits, author, told)
            name, _ = name_and_warnings(file, moved, self._writing.pipeline)
            updated = tuple(page_path(other.file) for other in others)
            return Renamed(name, page_path(file), file, place.path, revision, updated)

        return self._writing.retried(once)

    def _require_free(self, place: Located, file: str, new_path: str) -> None:
        if file == place.file:
            raise InvalidPage(f"{place.path!r} is the page's path already", hint="give another path")
        taken = self._writing.locator.find(new_path, self._writing.locator.head())
        if taken is not None and taken.file != place.file:
            raise PageExists(f"there is a page {taken.path!r} already", hint="choose another path")

    def _edits(self, place: Located, file: str, update_links: bool, spelled: str | None) -> tuple[bytes, list[_Edited]]:
        """What the moved page will hold, and the other pages whose links change with it."""
        head = self._source.head()
        limit = self._writing.pipeline.max_bytes
        (own,) = self._source.read([place.blob], limit)
        if own.data is None:
            raise InvalidPage(f"git could not read {place.path}", hint="it may be over page.max_bytes; rename with git")
        if not update_links:
            return own.data, []
        tree = self._source.tree(head)
        before = {page_path(each) for each, entry in tree.items() if entry.kind is EntryKind.FILE}
        old, new, whole = place.path, spelled or page_path(file), spelled is not None
        move = Move(old, new, Names(before, whole=whole), Names(before - {old} | {new}, whole=whole))
        candidates = [each for each in sorted(self._candidates(tree, head, old, new)) if each != place.file]
        blobs = self._source.read((tree[each].blob for each in candidates), limit)
        others = [
            _Edited(each, blob.id, data)
            for each, blob in zip(candidates, blobs, strict=True)
            if blob.data is not None and (data := rewritten(blob.data, each, each, move)) != blob.data
        ]
        return rewritten(own.data, place.file, file, move), others

    def _candidates(self, tree: Mapping[str, TreeEntry], head: str, old: str, new: str) -> Iterator[str]:
        """The pages that may hold a link whose meaning changes: by the index as far as it goes, else all pages."""
        keys = {folded(each) for path in (old, new) for each in (path, last_part(path))}
        try:
            with self._index() as index:
                known = index.state().revision
                changes = self._source.changes(known, head) if known else None
                if changes is None:
                    found = set(tree)
                else:
                    ids = {link.page_id for link in index.links_naming(sorted(keys))}
                    found = {page.file for page in index.stored_pages(list(ids)).values()}
                    found |= {change.file for change in changes} | {problem.file for problem in index.problems()}
        except IndexFault:
            found = set(tree)
        yield from (each for each in found if each in tree and tree[each].kind is EntryKind.FILE)
