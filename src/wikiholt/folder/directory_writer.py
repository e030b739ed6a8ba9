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
from wikiholt.folder.file_table import (
    hash_content,
    make_attachment_id,
    make_unread_id,
)
from wikiholt.folder.files_on_disk import TEMPORARY_PREFIX, find_ignored_names, find_stamp, list_names, read_file
from wikiholt.git.commit import validate_commit
from wikiholt.git.journal import PlannedChange, WriteJournal, translate_write_errors
from wikiholt.git.tree_editor import FILE_MODE, GitEntry, check_distinct
from wikiholt.git.worktree import is_writable, open_parent, remove_empty_directories, replace_file

_READ_TRIES = 3


class DirectoryWriter:
    """Writes files of one directory. Requires its lock."""

    def __init__(self, scanner: DirectoryScanner, journal_directory: Path) -> None:
        self._scanner = scanner
        self._table, self._root = scanner.table, scanner.root
        self._journal = WriteJournal(journal_directory, journal_directory)

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
            planned = [self._plan(edit) for edit in edits]
            self._check_new_names(planned)
            moved = {change.moved_from for change in planned}
            planned = [change for change in planned if change.path not in moved]
            if len(planned) > 1:
                self._table.add_contents(
                    {hash_content(edit.data): edit.data for edit in edits if edit.data is not None}
                )
                self._journal.write("", planned)
            # New files first: a page that is being renamed is never missing from the disk.
            for change in sorted(planned, key=lambda change: change.new is None):
                if change.moved_from:
                    self._move_file(change.moved_from, change.path)
                else:
                    self._update_file(change.path, change.data)
            for edit in edits:
                if edit.moved_from:
                    remove_empty_directories(self._root, edit.moved_from)
        self._scanner.rescan(pages)
        self._journal.clear()

    def finish_interrupted(self) -> None:
        """Finish the write of a process that was killed between two files."""
        unfinished = self._journal.read()
        if unfinished is None:
            return
        for change in sorted(unfinished[1], key=lambda change: change.new is None):
            if change.moved_from:
                # The move is one step, so the file is at its old or at its new place.
                if find_stamp(self._root, change.moved_from) and not os.path.lexists(self._root / change.path):
                    self._move_file(change.moved_from, change.path)
                remove_empty_directories(self._root, change.moved_from)
            elif self._find_id(change.path) == (change.old.object_id if change.old else None):
                # Else it is already done, or was changed by somebody else.
                data = self._table.read_content(change.new.object_id) if change.new else None
                if data is not None or change.new is None:
                    self._update_file(change.path, data)
        self._journal.clear()

    def _plan(self, edit: FileEdit) -> PlannedChange:
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
        old = GitEntry(FILE_MODE, current) if current else None
        if edit.data is None and edit.moved_from:
            moved = GitEntry(FILE_MODE, self._find_id(edit.moved_from) or "")
            return PlannedChange(edit.file, old, moved, moved_from=edit.moved_from)
        new = GitEntry(FILE_MODE, hash_content(edit.data)) if edit.data is not None else None
        return PlannedChange(edit.file, old, new, edit.data)

    def _find_id(self, file: str, *, is_attachment: bool = False) -> str | None:
        """What identifies the content of a file on disk, None if there is none; empty if it changes all the time."""
        for _ in range(_READ_TRIES):
            stamp = find_stamp(self._root, file)
            if stamp is None:
                return None
            if is_attachment:
                return make_attachment_id(stamp, file)
            if stamp.size > self._scanner.max_bytes:
                return make_unread_id(stamp.size)
            data = read_file(self._root, file, stamp)
            if data is not None:
                return hash_content(data)
        return ""

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

    def _check_new_names(self, planned: Sequence[PlannedChange]) -> None:
        """Raise InvalidPage if a new name looks like another one that stays in the same directory."""
        removed = {change.path for change in planned if change.new is None}

        def list_remaining(directory: str) -> list[str]:
            prefix = f"{directory}/" if directory else ""
            return [name for name in list_names(self._root, directory) if prefix + name not in removed]

        check_distinct([change.path for change in planned if change.old is None and change.new], list_remaining)
