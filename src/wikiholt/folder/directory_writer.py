"""Writes pages and attachments to a directory: each file is replaced atomically, and several files all or nothing.

The expected content is compared with the files on disk, not with the last scan. A write that was interrupted is
finished by the next scan or write, unless somebody changed a file since.
"""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from wikiholt.domain.git import Author, FileEdit
from wikiholt.errors import InvalidPage, NotWritable, RevisionMismatch
from wikiholt.folder.directory_scanner import DirectoryScanner
from wikiholt.folder.file_table import PendingChange
from wikiholt.folder.files_on_disk import (
    TEMPORARY_PREFIX,
    find_ignored_names,
    find_stamp,
    hash_content,
    list_names,
    make_attachment_id,
    read_current_file,
    read_file,
)
from wikiholt.git.commit import validate_commit
from wikiholt.git.journal import translate_write_errors
from wikiholt.git.tree_editor import check_distinct
from wikiholt.git.worktree import is_writable, open_parent, remove_empty_directories, replace_file


class DirectoryWriter:
    """Writes files of one directory. Requires its lock."""

    def __init__(self, scanner: DirectoryScanner) -> None:
        self._scanner = scanner
        self._table, self._root = scanner.table, scanner.root

    def write(self, edits: Sequence[FileEdit], author: Author, message: str) -> None:
        """Write these edits to the disk, then into the table.

        Raises InputTooLarge, InvalidPage, NotWritable, RevisionMismatch.
        """
        validate_commit(edits, author, message, self._scanner.files)
        pages = [edit.file for edit in edits if not edit.is_attachment]
        if ignored := find_ignored_names(self._root, pages, self._scanner.timeout_s):
            raise InvalidPage(
                f"{ignored.pop()} would not be a page of this wiki.", hint="The checkout's .gitignore excludes it."
            )
        with translate_write_errors("directory"):
            self.finish_interrupted()
            changes = [self._plan(edit) for edit in edits]
            self._check_new_names(changes)
            moved = {change.moved_from for change in changes}
            changes = [change for change in changes if change.path not in moved]
            if len(changes) > 1:
                self._table.write_pending(changes)
            # New files first: a page that is being renamed is never missing from the disk.
            for change in sorted(changes, key=lambda change: change.is_removal):
                self._apply(change)
            for edit in edits:
                if edit.moved_from:
                    remove_empty_directories(self._root, edit.moved_from)
        self._scanner.rescan(pages)
        if len(changes) > 1:
            self._table.write_pending(())

    def finish_interrupted(self) -> None:
        """Finish the write of a process that was killed between two files."""
        changes = self._table.read_pending()
        for change in sorted(changes, key=lambda change: change.is_removal):
            if change.moved_from:
                # The move is one step, so the file is at its old or at its new place.
                if find_stamp(self._root, change.moved_from) and not os.path.lexists(self._root / change.path):
                    self._apply(change)
                remove_empty_directories(self._root, change.moved_from)
            elif self._find_id(change.path) == change.old:  # else it is done, or was changed by somebody else
                self._apply(change)
        if changes:
            self._table.write_pending(())

    def _plan(self, edit: FileEdit) -> PendingChange:
        """The change of one file, if it is still as expected and can be written."""
        current = self._find_id(edit.file, is_attachment=edit.is_attachment)
        if current is None:
            self._require_free(edit.file)
        if current != edit.expected_blob:
            self._scanner.rescan([] if edit.is_attachment else [edit.file], wait=True)
            problem = "has changed" if current and edit.expected_blob else "already exists" if current else "is gone"
            raise RevisionMismatch(
                f"{edit.file} {problem}.", current=None, hint="Read the page again and repeat the change."
            )
        if not is_writable(self._root, edit.file):
            raise NotWritable(
                f"{edit.file} cannot be written.", hint="Check that the user who runs wikiholt may write there."
            )
        moved_from = edit.moved_from if edit.data is None and edit.moved_from else ""
        return PendingChange(edit.file, current, edit.data, moved_from)

    def _find_id(self, file: str, *, is_attachment: bool = False) -> str | None:
        """What identifies the content of a file on disk, None if there is none; empty if it changes all the time."""
        if is_attachment:
            stamp = find_stamp(self._root, file)
            return make_attachment_id(stamp, file) if stamp is not None else None
        current = read_current_file(self._root, file, self._scanner.max_bytes)
        return current.id if current is not None else None

    def _apply(self, change: PendingChange) -> None:
        if change.moved_from:
            self._move_file(change.moved_from, change.path)
        else:
            self._update_file(change.path, change.data)

    def _move_file(self, old: str, new: str) -> None:
        """Move a file in one step; to another file system by copying it first."""
        try:
            with (
                open_parent(self._root, new, create=True) as (new_parent, new_name),
                open_parent(self._root, old) as (old_parent, old_name),
            ):
                os.rename(old_name, new_name, src_dir_fd=old_parent, dst_dir_fd=new_parent)
                os.fsync(new_parent)
                os.fsync(old_parent)
        except OSError as error:
            stamp = find_stamp(self._root, old) if error.errno == errno.EXDEV else None
            data = read_file(self._root, old, stamp) if stamp else None
            if data is None:
                raise
            self._update_file(new, data)
            self._update_file(old, None)

    def _update_file(self, path: str, data: bytes | None) -> None:
        """Replace or remove a file; directories stay, even if they become empty."""
        if data is None:
            with suppress(FileNotFoundError), open_parent(self._root, path) as (directory, name):
                os.unlink(name, dir_fd=directory)
                os.fsync(directory)
            return
        temporary = f"{TEMPORARY_PREFIX}{hash_content(data)[:16]}"
        replace_file(self._root, path, data, temporary, 0o666, durable=True, keep_mode=True)

    def _require_free(self, file: str) -> None:
        """Raise InvalidPage if something other than a file has this path or a part of it."""
        for directory in reversed(Path(file).parents[:-1]):
            if os.path.lexists(self._root / directory) and not (self._root / directory).is_dir():
                raise InvalidPage(f"The path {directory} exists but is not a directory.", hint="Choose another name.")
        if os.path.lexists(self._root / file):
            raise InvalidPage(f"The path {file} exists but is not a file.", hint="Choose another name.")

    def _check_new_names(self, changes: Sequence[PendingChange]) -> None:
        """Raise InvalidPage if a new name looks like another one that stays in the same directory."""
        removed = {change.path for change in changes if change.is_removal}

        def list_remaining(directory: str) -> list[str]:
            prefix = f"{directory}/" if directory else ""
            return [name for name in list_names(self._root, directory) if prefix + name not in removed]

        check_distinct([change.path for change in changes if not (change.old or change.is_removal)], list_remaining)
