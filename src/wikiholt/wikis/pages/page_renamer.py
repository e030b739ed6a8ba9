"""Renames pages: sub-pages and attachments move with a page, and links are updated, in one commit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from wikiholt.domain.git import Author, EntryKind, FileEdit, TreeEntry
from wikiholt.domain.page import MovedFile, PageRenameResult
from wikiholt.errors import IndexUnavailable, InputTooLarge, InvalidPage, PageExists
from wikiholt.text.link_rewrite import PageMove, rewrite_links
from wikiholt.text.links import PageNameIndex, fold_path, get_folder, get_last_part, get_other_names
from wikiholt.text.page_names import get_extension, get_page_path, is_code, is_document, is_folder_page
from wikiholt.wikis.pages.page_reader import PageFile, get_new_file, parse_name_and_warnings
from wikiholt.wikis.pages.page_writer import PageWriter

_MAX_MOVED_FILES = 2_000
_LEAVE_HINT = "choose another path, or set move_subpages to false to move only the page"


class _FileMove(NamedTuple):
    """A file that moves: a page, or another file in the folder of the page."""

    old: str
    new: str
    blob: str
    is_page: bool = True


class _EditedPage(NamedTuple):
    file: str
    blob: str
    data: bytes


class PageRenamer(PageWriter):
    """Renames the pages of one wiki."""

    def rename(
        self,
        path: str,
        new_path: str,
        author: Author,
        message: str = "",
        *,
        expected: str | None = None,
        update_links: bool = True,
        move_subpages: bool = True,
        to_link_path: Callable[[str], str | None] = lambda _: None,
    ) -> PageRenameResult:
        """Move the page to another path, in one commit. Raises PageExists if the path is taken.

        The files in its folder move with it, unless `move_subpages` is false. Links keep the form in which they were
        written; without `update_links` no file is edited. `to_link_path` makes the path that is written in links.
        """
        file = get_new_file(new_path)

        def attempt() -> PageRenameResult:
            head = self._read_head()
            page_file = self._get_current(path, expected, head)
            assert head is not None, "there is a page, so there is a commit"
            self._require_free(page_file, file, new_path, head)
            tree = self._source.read_tree(head)
            is_alone = not move_subpages or is_document(file)
            folders = None if is_alone else self._find_folders(page_file.file, file)
            moves = [_FileMove(page_file.file, file, page_file.blob)]
            moves += self._find_moves(page_file.file, folders, tree, head) if folders else ()
            own, contents, others = self._read_own(page_file), {}, list[_EditedPage]()
            if update_links:
                move = self._make_page_move(moves, folders, tree, to_link_path)
                contents = self._rewrite_moved(moves, move)
                others = self._rewrite_others(moves, move, tree, head)
            edits = [edit for moved in moves for edit in _make_edits(moved, contents.get(moved.new))]
            edits += [FileEdit(other.file, other.data, other.blob) for other in others]
            default = f"Rename {page_file.path} to {get_page_path(file)}"
            revision = self._commit(edits, author, message or default)
            name, _ = parse_name_and_warnings(file, contents.get(file, own), self.get_pipeline())
            updated = tuple(get_page_path(other.file) for other in others)
            moved_files = tuple(MovedFile(moved.old, moved.new, moved.is_page) for moved in moves[1:])
            return PageRenameResult(name, get_page_path(file), file, page_file.path, revision, updated, moved_files)

        return self._retry(attempt)

    def _require_free(self, page_file: PageFile, file: str, new_path: str, head: str) -> None:
        if is_code(page_file.file):
            raise InvalidPage(f"{page_file.path} is source code", hint="rename the file with git")
        extension = get_extension(page_file.file)
        if (is_document(page_file.file) or is_document(file)) and get_extension(file) != extension:
            raise InvalidPage(f"a page keeps the extension of its file, {extension}", hint="give another path")
        if file == page_file.file:
            raise InvalidPage(f"{page_file.path!r} is already the page's path", hint="give another path")
        existing = self._find_page(new_path, head)
        if existing is not None and existing.file != page_file.file:
            raise PageExists(f"the page {existing.path!r} already exists", hint="choose another path")

    def _read_own(self, page_file: PageFile) -> bytes:
        (own,) = self._source.read_blobs([page_file.blob], self._pipeline.max_bytes)
        if own.data is None:
            raise InvalidPage(
                f"git could not read {page_file.path}", hint="it may be over page.max_bytes; rename with git"
            )
        return own.data

    # The files that move

    def _find_folders(self, old_file: str, new_file: str) -> tuple[str, str] | None:
        """The folder of the page's sub-pages and attachments, before and after; None if there is none or it stays.

        It is named like the page. That of `guides/index` is `guides`, unless the page gets another kind of name.
        """
        old, new = (file.rpartition(".")[0] for file in (old_file, new_file))
        if not self.get_pipeline().dialect.resolution.is_exact:
            if is_folder_page(new_file) and get_folder(new) == old:
                return None
            if is_folder_page(old_file) and is_folder_page(new_file) and get_last_part(old) == get_last_part(new):
                old, new = get_folder(old), get_folder(new)
        return (old, new) if old and new and old != new else None

    def _find_moves(
        self, own_file: str, folders: tuple[str, str], tree: Mapping[str, TreeEntry], head: str
    ) -> list[_FileMove]:
        """The files in the folder of the page. Raises an error if one of them cannot move, or its new name is taken."""
        old, new = (f"{folder}/" for folder in folders)
        all_others = self._source.list_other_files(head)
        pages = {file: entry for file, entry in tree.items() if file.startswith(old) and file != own_file}
        others = [file for file in all_others if file.startswith(old) and not _is_hidden(file.removeprefix(old))]
        if not pages and not others:
            return []
        _check_folders(old, new, len(pages) + len(others))
        blobs = {file: entry.blob for file, entry in pages.items() if entry.kind is EntryKind.FILE}
        for folder in {get_folder(file) for file in others}:
            attached = self._source.list_attached_files(folder, head)
            blobs |= {file: found.blob for name, found in attached.items() if (file := f"{folder}/{name}") in others}
        taken = {*tree, *all_others}
        moves = []
        for file in sorted({*pages, *others}):
            target = new + file.removeprefix(old)
            if file not in blobs:
                raise InvalidPage(
                    f"the file {file} cannot move with the page: it is no plain file, or its name is invalid",
                    hint="move it with git, or set move_subpages to false",
                )
            if target in taken:
                raise PageExists(f"{target} already exists", hint=_LEAVE_HINT)
            moves.append(_FileMove(file, target, blobs[file], file in pages))
        return moves

    # Links

    def _make_page_move(
        self,
        moves: Sequence[_FileMove],
        folders: tuple[str, str] | None,
        tree: Mapping[str, TreeEntry],
        to_link_path: Callable[[str], str | None],
    ) -> PageMove:
        dialect = self.get_pipeline().dialect
        before = {get_page_path(file) for file, entry in tree.items() if entry.kind is EntryKind.FILE}
        pages = {get_page_path(moved.old): get_page_path(moved.new) for moved in moves if moved.is_page}
        before_names, after_names = (
            PageNameIndex(paths, resolution=dialect.resolution)
            for paths in (before, before - pages.keys() | set(pages.values()))
        )
        files = {moved.old: moved.new for moved in moves if not moved.is_page}
        (old, new), *sub_pages = pages.items()
        return PageMove(old, new, before_names, after_names, dialect, to_link_path, dict(sub_pages), files, folders)

    def _rewrite_moved(self, moves: Sequence[_FileMove], move: PageMove) -> dict[str, bytes]:
        """The new contents of the moved pages that change, by their new files."""
        pages = [moved for moved in moves if moved.is_page]
        blobs = self._source.read_blobs((moved.blob for moved in pages), self._pipeline.max_bytes)
        return {
            moved.new: data
            for moved, blob in zip(pages, blobs, strict=True)
            if blob.data is not None and (data := rewrite_links(blob.data, moved.old, moved.new, move)) != blob.data
        }

    def _rewrite_others(
        self, moves: Sequence[_FileMove], move: PageMove, tree: Mapping[str, TreeEntry], head: str
    ) -> list[_EditedPage]:
        """The pages that stay and whose links change."""
        candidates = sorted(set(self._find_candidates(tree, head, moves)) - {moved.old for moved in moves})
        blobs = self._source.read_blobs((tree[file].blob for file in candidates), self._pipeline.max_bytes)
        return [
            _EditedPage(file, blob.id, data)
            for file, blob in zip(candidates, blobs, strict=True)
            if blob.data is not None and (data := rewrite_links(blob.data, file, file, move)) != blob.data
        ]

    def _find_candidates(self, tree: Mapping[str, TreeEntry], head: str, moves: Sequence[_FileMove]) -> Iterator[str]:
        """Pages that may contain a link whose target changes: by the index if it helps, else all pages."""
        paths = (get_page_path(file) for moved in moves for file in (moved.old, moved.new))
        keys = {fold_path(name) for path in paths for name in (path, get_last_part(path), *get_other_names(path))}
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


def _make_edits(moved: _FileMove, data: bytes | None) -> tuple[FileEdit, FileEdit]:
    is_attachment = not moved.is_page
    return (
        FileEdit(moved.old, None, moved.blob, is_attachment),
        FileEdit(moved.new, data, None, is_attachment, moved_from=moved.old),
    )


def _is_hidden(path: str) -> bool:
    return any(part.startswith(".") for part in path.split("/"))


def _check_folders(old: str, new: str, count: int) -> None:
    """Raise InvalidPage or InputTooLarge unless this number of files can move from one folder to the other."""
    if new.startswith(old):
        raise InvalidPage(f"the new path is in the page's own folder {old}", hint=_LEAVE_HINT)
    if new.casefold() == old.casefold():
        raise InvalidPage(
            f"{new} differs from {old} only in case, and some file systems cannot tell them apart",
            hint="rename the page to another path first, or set move_subpages to false",
        )
    if count > _MAX_MOVED_FILES:
        raise InputTooLarge(
            f"the folder {old} has {count:,} files; the limit of a rename is {_MAX_MOVED_FILES:,}",
            hint="rename it with git, or set move_subpages to false",
        )
